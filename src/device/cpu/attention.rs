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
//!
//! Up to three queries pass a tile together, so that its keys and values are loaded and widened once
//! for them: query heads of a group and, where the tile lies wholly before them, neighbouring rows.

use super::arena::{Arena, Tile};
use super::dense::{BF16, F16, F32, Plain, widen_eights};
use super::disjoint::Disjoint;
use super::float::exp;
use super::lanes::{Lanes, tiered};
use super::quantised::{self, Activations, BLOCK};
use crate::device::{KvType, PAGE_POSITIONS, PageId};

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
    pub out: &'a Disjoint<'a, f32>,
    /// The same rows in blocks of 8-bit integers, where the next product asks for them.
    pub blocks: Option<&'a Disjoint<'a, Activations>>,
}

/// Working memory of one run.
#[derive(Default)]
pub(super) struct Scratch {
    /// The tile's keys and values as f32, `[16][head_dim]`, where many queries share them.
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
        self.keys.resize(PAGE_POSITIONS * head_dim, 0.0);
        self.values.resize(PAGE_POSITIONS * head_dim, 0.0);
        fill(&mut self.greatest, heads, f32::NEG_INFINITY);
        fill(&mut self.weights, heads, 0.0);
        fill(&mut self.acc, heads * head_dim, 0.0);
    }
}

/// Queries from which on a tile is widened once into memory rather than in registers each time.
const MANY: usize = 7;

tiered! {
    /// Attends with every row and query head of the run.
    pub(super) fn attend(run: &Run<'_>, scratch: &mut Scratch) = attend_body
}

#[inline(always)]
fn attend_body<V: Lanes>(run: &Run<'_>, scratch: &mut Scratch) {
    let head_dim = run.arena.layout().head_dim;
    let rows = run.queries.len() / run.width;
    scratch.reset(rows * run.group, head_dim);
    match run.arena.layout().kv {
        KvType::F16 => attend_tiles::<V, F16>(run, rows, scratch),
        KvType::Bf16 => attend_tiles::<V, BF16>(run, rows, scratch),
        KvType::F32 => attend_tiles::<V, F32>(run, rows, scratch),
    }
    finish::<V>(run, rows, head_dim, scratch);
}

fn bytes_of(tile: Tile<'_>) -> &[u8] {
    match tile {
        Tile::F16(x) | Tile::Bf16(x) => bytemuck::cast_slice(x),
        Tile::F32(x) => bytemuck::cast_slice(x),
    }
}

#[inline(always)]
fn attend_tiles<V: Lanes, P: Plain>(run: &Run<'_>, rows: usize, scratch: &mut Scratch) {
    let end = run.position + rows;
    let tiles = end.div_ceil(PAGE_POSITIONS);
    for (tile, page) in run.table[..tiles].iter().enumerate() {
        let next = run.table[..tiles].get(tile + 1).copied();
        let keys = bytes_of(run.arena.keys(*page, run.layer, run.kv_head));
        let values = bytes_of(run.arena.values(*page, run.layer, run.kv_head));
        let start = tile * PAGE_POSITIONS;
        if rows * run.group < MANY {
            attend_tile::<V, P>(run, start, rows, keys, values, next, scratch);
        } else {
            if let Some(page) = next {
                V::prefetch(bytes_of(run.arena.keys(page, run.layer, run.kv_head)));
                V::prefetch(bytes_of(run.arena.values(page, run.layer, run.kv_head)));
            }
            let (mut wide_keys, mut wide_values) =
                (std::mem::take(&mut scratch.keys), std::mem::take(&mut scratch.values));
            widen_eights::<V, P>(keys, &mut wide_keys);
            widen_eights::<V, P>(values, &mut wide_values);
            let keys = bytemuck::cast_slice(&wide_keys);
            let values = bytemuck::cast_slice(&wide_values);
            attend_tile::<V, F32>(run, start, rows, keys, values, None, scratch);
            (scratch.keys, scratch.values) = (wide_keys, wide_values);
        }
    }
}

/// Queries of a run that pass a tile together: numbers `first..` of (row, query head).
struct Together {
    first: usize,
    /// Positions of the tile that they attend to, 1..=16.
    valid: usize,
}

/// One tile with all queries of the run that reach it; `next` is the page whose tile is needed next.
#[inline(always)]
fn attend_tile<V: Lanes, P: Plain>(
    run: &Run<'_>,
    start: usize,
    rows: usize,
    keys: &[u8],
    values: &[u8],
    next: Option<PageId>,
    scratch: &mut Scratch,
) {
    let mut row = start.saturating_sub(run.position);
    // Rows that see only a part of the tile come first, each by itself.
    while row < rows {
        let valid = (run.position + row + 1 - start).min(PAGE_POSITIONS);
        let last = if valid < PAGE_POSITIONS { row + 1 } else { rows };
        let mut first = row * run.group;
        while first < last * run.group {
            let together = Together { first, valid };
            match last * run.group - first {
                1 => {
                    queries::<V, P, 1>(run, &together, keys, values, next, scratch);
                    first += 1;
                }
                2 | 4 => {
                    queries::<V, P, 2>(run, &together, keys, values, next, scratch);
                    first += 2;
                }
                _ => {
                    queries::<V, P, 3>(run, &together, keys, values, next, scratch);
                    first += 3;
                }
            }
        }
        row = last;
    }
}

/// `Q` queries with one tile: scores, weights, values.
#[inline(always)]
fn queries<V: Lanes, P: Plain, const Q: usize>(
    run: &Run<'_>,
    together: &Together,
    keys: &[u8],
    values: &[u8],
    next: Option<PageId>,
    scratch: &mut Scratch,
) {
    let head_dim = run.arena.layout().head_dim;
    let (first, valid) = (together.first, together.valid);
    let mut query: [&[f32]; Q] = [&[]; Q];
    for (q, query) in query.iter_mut().enumerate() {
        let (row, head) = ((first + q) / run.group, (first + q) % run.group);
        let from = row * run.width + (run.kv_head * run.group + head) * head_dim;
        *query = &run.queries[from..from + head_dim];
    }
    if let Some(page) = next {
        V::prefetch(bytes_of(run.arena.keys(page, run.layer, run.kv_head)));
    }
    let mut scores = [[0.0f32; PAGE_POSITIONS]; Q];
    // Whole fours: what lies behind `valid` is read and then left out.
    for j in (0..valid).step_by(4) {
        let four = scores_of_four::<V, P, Q>(&query, &keys[j * head_dim * P::SIZE..]);
        for q in 0..Q {
            scores[q][j..j + 4].copy_from_slice(&four[q]);
        }
    }
    let scale = V::splat(1.0 / (head_dim as f32).sqrt());
    let mut corrections = [0.0; Q];
    for q in 0..Q {
        corrections[q] = weigh::<V>(&mut scores[q], valid, scale, first + q, scratch);
    }
    if let Some(page) = next {
        V::prefetch(bytes_of(run.arena.values(page, run.layer, run.kv_head)));
    }
    let acc = &mut scratch.acc[first * head_dim..(first + Q) * head_dim];
    add_values::<V, P, Q>(acc, values, &scores, valid, &corrections);
}

/// Dot products of `Q` queries with the first four keys.
#[inline(always)]
fn scores_of_four<V: Lanes, P: Plain, const Q: usize>(
    query: &[&[f32]; Q],
    keys: &[u8],
) -> [[f32; 4]; Q] {
    let head_dim = query[0].len();
    let eights = head_dim / 8;
    let mut key: [(&[P::Eight], &[u8]); 4] = [(&[], &[]); 4];
    for j in 0..4 {
        let (whole, tail) = P::eights(&keys[j * head_dim * P::SIZE..(j + 1) * head_dim * P::SIZE]);
        key[j] = (&whole[..eights], tail);
    }
    let mut x: [(&[[f32; 8]], &[f32]); Q] = [(&[], &[]); Q];
    for q in 0..Q {
        let (whole, tail) = query[q].as_chunks::<8>();
        x[q] = (&whole[..eights], tail);
    }
    let mut acc = [[V::splat(0.0); 4]; Q];
    for i in 0..eights {
        let mut k = [V::splat(0.0); 4];
        for j in 0..4 {
            k[j] = P::widen(&key[j].0[i]);
        }
        for q in 0..Q {
            let x = V::load(&x[q].0[i]);
            for j in 0..4 {
                acc[q][j] = x.fma(k[j], acc[q][j]);
            }
        }
    }
    if !x[0].1.is_empty() {
        for j in 0..4 {
            let mut padded = [0.0; 8];
            super::dense::widen::<P>(key[j].1, &mut padded);
            let k = V::load(&padded);
            for q in 0..Q {
                acc[q][j] = V::load_tail(x[q].1).fma(k, acc[q][j]);
            }
        }
    }
    let mut four = [[0.0; 4]; Q];
    for q in 0..Q {
        four[q] = V::sums_of_four(acc[q]);
    }
    four
}

/// Makes weights of a tile's scores and moves the running state; answers with the correction of
/// what was summed before.
#[inline(always)]
fn weigh<V: Lanes>(
    scores: &mut [f32; PAGE_POSITIONS],
    valid: usize,
    scale: V,
    state: usize,
    scratch: &mut Scratch,
) -> f32 {
    let nothing = V::splat(f32::NEG_INFINITY);
    let (halves, _) = scores.as_chunks_mut::<8>();
    let low = V::load(&halves[0]).mul(scale).first(valid, nothing);
    let high = V::load(&halves[1]).mul(scale).first(valid.saturating_sub(8), nothing);
    let before = scratch.greatest[state];
    let tile = low.max(high).greatest();
    let greatest = if before > tile { before } else { tile };
    let (low, high) = (exp(low.sub(V::splat(greatest))), exp(high.sub(V::splat(greatest))));
    low.store(&mut halves[0]);
    high.store(&mut halves[1]);
    let mut correction = [0.0; 8];
    exp(V::splat(before).sub(V::splat(greatest))).store(&mut correction);
    scratch.greatest[state] = greatest;
    scratch.weights[state] = scratch.weights[state].mul_add(correction[0], low.add(high).sum());
    correction[0]
}

/// `acc = acc * correction + Σ_j weights[j] * values[j]` for `Q` queries, positions in order.
#[inline(always)]
fn add_values<V: Lanes, P: Plain, const Q: usize>(
    acc: &mut [f32],
    values: &[u8],
    weights: &[[f32; PAGE_POSITIONS]; Q],
    valid: usize,
    corrections: &[f32; Q],
) {
    let head_dim = acc.len() / Q;
    let mut at = 0;
    while at + 32 <= head_dim {
        add_columns::<V, P, Q, 4>(acc, values, at, weights, valid, corrections);
        at += 32;
    }
    while at + 8 <= head_dim {
        add_columns::<V, P, Q, 1>(acc, values, at, weights, valid, corrections);
        at += 8;
    }
    if at == head_dim {
        return;
    }
    for q in 0..Q {
        let tail = &mut acc[q * head_dim + at..(q + 1) * head_dim];
        let mut sum = V::load_tail(tail).mul(V::splat(corrections[q]));
        for (j, weight) in weights[q][..valid].iter().enumerate() {
            let mut padded = [0.0; 8];
            let bytes = &values[(j * head_dim + at) * P::SIZE..(j + 1) * head_dim * P::SIZE];
            super::dense::widen::<P>(bytes, &mut padded);
            sum = V::splat(*weight).fma(V::load(&padded), sum);
        }
        sum.store_tail(tail);
    }
}

/// [`add_values`] for `8 * C` columns from column `at`.
#[inline(always)]
fn add_columns<V: Lanes, P: Plain, const Q: usize, const C: usize>(
    acc: &mut [f32],
    values: &[u8],
    at: usize,
    weights: &[[f32; PAGE_POSITIONS]; Q],
    valid: usize,
    corrections: &[f32; Q],
) {
    let head_dim = acc.len() / Q;
    let mut sums = [[V::splat(0.0); C]; Q];
    for q in 0..Q {
        let acc = acc[q * head_dim + at..][..8 * C].as_chunks::<8>().0;
        for c in 0..C {
            sums[q][c] = V::load(&acc[c]).mul(V::splat(corrections[q]));
        }
    }
    for j in 0..valid {
        let row = P::eights(&values[(j * head_dim + at) * P::SIZE..][..8 * C * P::SIZE]).0;
        let mut value = [V::splat(0.0); C];
        for c in 0..C {
            value[c] = P::widen(&row[c]);
        }
        for q in 0..Q {
            let weight = V::splat(weights[q][j]);
            for c in 0..C {
                sums[q][c] = weight.fma(value[c], sums[q][c]);
            }
        }
    }
    for q in 0..Q {
        let acc = acc[q * head_dim + at..][..8 * C].as_chunks_mut::<8>().0;
        for c in 0..C {
            sums[q][c].store(&mut acc[c]);
        }
    }
}

#[inline(always)]
fn finish<V: Lanes>(run: &Run<'_>, rows: usize, head_dim: usize, scratch: &Scratch) {
    let width = run.group * head_dim;
    let from = run.kv_head * width;
    for row in 0..rows {
        // SAFETY: runs have different rows or different key heads, so their parts are disjoint.
        let out = unsafe { run.out.part(run.first_row + row, from, width) };
        for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let state = row * run.group + head;
            let acc = &scratch.acc[state * head_dim..(state + 1) * head_dim];
            let weights = V::splat(scratch.weights[state]);
            let ((outs, out_tail), (eights, tail)) =
                (out.as_chunks_mut::<8>(), acc.as_chunks::<8>());
            for (out, a) in outs.iter_mut().zip(eights) {
                V::load(a).div(weights).store(out);
            }
            V::load_tail(tail).div(weights).store_tail(out_tail);
        }
        if let Some(blocks) = run.blocks {
            // SAFETY: as above; `blocks` are only given where a key head's part is whole blocks.
            let blocks = unsafe { blocks.part(run.first_row + row, from / BLOCK, width / BLOCK) };
            quantised::quantise_row_body::<V>(out, blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::{Cpu, Tier};
    use crate::device::{Ops, PageLayout};

    impl Scratch {
        fn numbers(&self) -> usize {
            let Self { keys, values, greatest, weights, acc } = self;
            [keys, values, greatest, weights, acc].iter().map(|part| part.capacity()).sum()
        }
    }

    /// Query heads share keys and values where they lie: nothing is copied for them, and what a run
    /// works in is one tile and its queries' state, however long the sequence is.
    #[test]
    fn working_memory_does_not_grow_with_the_sequence() {
        const HEAD: usize = 64;
        const GROUP: usize = 8;
        let layout =
            PageLayout { layers: 1, kv_heads: 1, head_dim: HEAD, hidden: 0, kv: KvType::F16 };
        let arena = Cpu::new(1).and_then(|cpu| cpu.arena(layout, 1)).expect("an arena");
        let queries = vec![0.5; GROUP * HEAD];
        for pages in [1, 1000] {
            let table = vec![PageId(0); pages];
            let mut out = vec![f32::NAN; GROUP * HEAD];
            let mut scratch = Scratch::default();
            let run = Run {
                arena: &arena,
                table: &table,
                layer: 0,
                kv_head: 0,
                group: GROUP,
                position: pages * PAGE_POSITIONS - 1,
                queries: &queries,
                width: GROUP * HEAD,
                first_row: 0,
                out: &Disjoint::new(&mut out, 1, GROUP * HEAD),
                blocks: None,
            };
            attend(Tier::detect(), &run, &mut scratch);
            let tile = PAGE_POSITIONS * HEAD;
            assert_eq!(scratch.numbers(), 2 * tile + GROUP * (HEAD + 2), "{pages} pages");
            assert!(out.iter().all(|x| *x == 0.0), "values of an empty page");
        }
    }
}
