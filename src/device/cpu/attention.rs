//! Attention of a run of rows over the pages of their sequence, one key head at a time.
//!
//! The declared arithmetic of one row and query head. Tiles are pages, in order. In a tile:
//! `s_j = (q · k_j) * scale`, the dot product in eight sums by index mod 8 and the tree; `m' = max(m,
//! max_j s_j)`; `c = exp(m - m')`; `p_j = exp(s_j - m')`, 0 behind the row's position;
//! `l = fma(l, c, Σ p)`, the sum over `p_j + p_{j+8}` by the tree; and for each number of the head
//! `a = a * c`, then `a = fma(p_j, v_j, a)` for j in order, up to the row's position. The result is
//! `a / l`. Running softmax after Milakov and Gimelshein 2018, algorithm 3.
//!
//! Nothing behind a row's position enters: positions of the last tile that are not yet written are
//! neither summed nor multiplied by 0.

use super::arena::{Arena, Tile};
use super::disjoint::Disjoint;
use super::float::{exp, widen_f16};
use super::lanes::{Lanes, tiered};
use crate::device::{PAGE_POSITIONS, PageId};

/// Rows that follow each other in one sequence, and the key head that they attend with.
pub(super) struct Run<'a> {
    pub arena: &'a Arena,
    /// Pages of the sequence.
    pub table: &'a [PageId],
    pub layer: usize,
    pub kv_head: usize,
    /// Query heads that share this key head.
    pub group: usize,
    /// Position of the first row; the others follow it.
    pub position: usize,
    /// The rows' queries, `[rows][heads * head_dim]`.
    pub queries: &'a [f32],
    /// Numbers in one row of queries.
    pub width: usize,
    /// Which row of `out` is the first row's.
    pub first_row: usize,
    pub out: &'a Disjoint<'a>,
}

/// Working memory of one run.
#[derive(Default)]
pub(super) struct Scratch {
    /// The tile's keys and values as f32, `[16][head_dim]`.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// Per row and query head: the greatest score, the sum of weights, the weighted values.
    greatest: Vec<f32>,
    weights: Vec<f32>,
    acc: Vec<f32>,
}

impl Scratch {
    fn reset(&mut self, heads: usize, head_dim: usize) {
        let fill = |buffer: &mut Vec<f32>, len: usize, x: f32| {
            buffer.clear();
            buffer.resize(len, x);
        };
        fill(&mut self.keys, PAGE_POSITIONS * head_dim, 0.0);
        fill(&mut self.values, PAGE_POSITIONS * head_dim, 0.0);
        fill(&mut self.greatest, heads, f32::NEG_INFINITY);
        fill(&mut self.weights, heads, 0.0);
        fill(&mut self.acc, heads * head_dim, 0.0);
    }
}

tiered! {
    /// Attends with every row and query head of the run.
    pub(super) fn attend(run: &Run<'_>, scratch: &mut Scratch) = attend_body
}

#[inline(always)]
fn attend_body<V: Lanes>(run: &Run<'_>, scratch: &mut Scratch) {
    let head_dim = run.arena.layout().head_dim;
    let rows = run.queries.len() / run.width;
    let scale = 1.0 / (head_dim as f32).sqrt();
    scratch.reset(rows * run.group, head_dim);
    let end = run.position + rows;
    for (page, start) in run.table.iter().zip((0..end).step_by(PAGE_POSITIONS)) {
        let filled = (end - start).min(PAGE_POSITIONS) * head_dim;
        let keys = run.arena.keys(*page, run.layer, run.kv_head);
        let values = run.arena.values(*page, run.layer, run.kv_head);
        widen_tile::<V>(keys, &mut scratch.keys[..filled]);
        widen_tile::<V>(values, &mut scratch.values[..filled]);
        for row in start.saturating_sub(run.position)..rows {
            let valid = (run.position + row + 1 - start).min(PAGE_POSITIONS);
            for head in 0..run.group {
                let from = row * run.width + (run.kv_head * run.group + head) * head_dim;
                let query = &run.queries[from..from + head_dim];
                attend_tile::<V>(query, valid, scale, row * run.group + head, scratch);
            }
        }
    }
    finish(run, rows, head_dim, scratch);
}

#[inline(always)]
fn widen_tile<V: Lanes>(tile: Tile<'_>, out: &mut [f32]) {
    match tile {
        Tile::F16(x) => widen_f16::<V>(&x[..out.len()], out),
        Tile::F32(x) => out.copy_from_slice(&x[..out.len()]),
    }
}

/// One tile of one row and query head, whose running state is `scratch`'s number `state`.
#[inline(always)]
fn attend_tile<V: Lanes>(
    query: &[f32],
    valid: usize,
    scale: f32,
    state: usize,
    scratch: &mut Scratch,
) {
    let head_dim = query.len();
    let nothing = V::splat(f32::NEG_INFINITY);
    let scale = V::splat(scale);
    let low = scores::<V>(query, &scratch.keys).mul(scale).first(valid, nothing);
    let high = if valid > 8 {
        scores::<V>(query, &scratch.keys[8 * head_dim..]).mul(scale).first(valid - 8, nothing)
    } else {
        nothing
    };
    let before = scratch.greatest[state];
    let tile = low.max(high).greatest();
    let greatest = if before > tile { before } else { tile };
    let (low, high) = (exp(low.sub(V::splat(greatest))), exp(high.sub(V::splat(greatest))));
    let mut correction = [0.0; 8];
    exp(V::splat(before).sub(V::splat(greatest))).store(&mut correction);
    let correction = correction[0];
    scratch.greatest[state] = greatest;
    scratch.weights[state] = scratch.weights[state].mul_add(correction, low.add(high).sum());
    let mut weights = [0.0; PAGE_POSITIONS];
    let (first, second) = weights.split_at_mut(8);
    low.store_tail(first);
    high.store_tail(second);
    let acc = &mut scratch.acc[state * head_dim..(state + 1) * head_dim];
    add_values::<V>(acc, &scratch.values, &weights[..valid], correction);
}

/// Dot products of a query with the first eight keys.
#[inline(always)]
fn scores<V: Lanes>(query: &[f32], keys: &[f32]) -> V {
    let head_dim = query.len();
    let mut rows: [(&[[f32; 8]], &[f32]); 8] = [(&[], &[]); 8];
    for j in 0..8 {
        rows[j] = keys[j * head_dim..(j + 1) * head_dim].as_chunks();
    }
    let (eights, tail) = query.as_chunks::<8>();
    let mut acc = [V::splat(0.0); 8];
    for (i, eight) in eights.iter().enumerate() {
        let query = V::load(eight);
        for j in 0..8 {
            acc[j] = query.fma(V::load(&rows[j].0[i]), acc[j]);
        }
    }
    if !tail.is_empty() {
        let query = V::load_tail(tail);
        for j in 0..8 {
            acc[j] = query.fma(V::load_tail(rows[j].1), acc[j]);
        }
    }
    V::sums(acc)
}

/// `acc = acc * correction + Σ_j weights[j] * values[j]`, positions in order.
#[inline(always)]
fn add_values<V: Lanes>(acc: &mut [f32], values: &[f32], weights: &[f32], correction: f32) {
    let head_dim = acc.len();
    let mut at = 0;
    while at + 64 <= head_dim {
        add_columns::<V, 8>(&mut acc[at..at + 64], &values[at..], head_dim, weights, correction);
        at += 64;
    }
    while at + 8 <= head_dim {
        add_columns::<V, 1>(&mut acc[at..at + 8], &values[at..], head_dim, weights, correction);
        at += 8;
    }
    if at < head_dim {
        let tail = &mut acc[at..];
        let mut sum = V::load_tail(tail).mul(V::splat(correction));
        for (j, weight) in weights.iter().enumerate() {
            let value = V::load_tail(&values[j * head_dim + at..(j + 1) * head_dim]);
            sum = V::splat(*weight).fma(value, sum);
        }
        sum.store_tail(tail);
    }
}

/// [`add_values`] for `8 * C` columns; `values` starts at the first of them.
#[inline(always)]
fn add_columns<V: Lanes, const C: usize>(
    acc: &mut [f32],
    values: &[f32],
    head_dim: usize,
    weights: &[f32],
    correction: f32,
) {
    let acc = acc.as_chunks_mut::<8>().0;
    let correction = V::splat(correction);
    let mut sums = [correction; C];
    for c in 0..C {
        sums[c] = V::load(&acc[c]).mul(correction);
    }
    for (j, weight) in weights.iter().enumerate() {
        let row = values[j * head_dim..j * head_dim + 8 * C].as_chunks::<8>().0;
        let weight = V::splat(*weight);
        for c in 0..C {
            sums[c] = weight.fma(V::load(&row[c]), sums[c]);
        }
    }
    for c in 0..C {
        sums[c].store(&mut acc[c]);
    }
}

fn finish(run: &Run<'_>, rows: usize, head_dim: usize, scratch: &Scratch) {
    let width = run.group * head_dim;
    for row in 0..rows {
        // SAFETY: runs have different rows or different key heads, so their parts are disjoint.
        let out = unsafe { run.out.part(run.first_row + row, run.kv_head * width, width) };
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let state = row * run.group + head;
            let acc = &scratch.acc[state * head_dim..(state + 1) * head_dim];
            for (out, a) in out.iter_mut().zip(acc) {
                *out = a / scratch.weights[state];
            }
        }
    }
}
