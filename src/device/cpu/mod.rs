//! The operations on this machine's processor: kernels in two forms with equal bits ([`Tier`]) and
//! a pool of threads.

mod arena;
mod attention;
mod dense;
mod disjoint;
mod float;
mod lanes;
mod linear;
mod quantised;
#[cfg(test)]
mod tests;

pub use arena::Arena;
pub use lanes::Tier;
pub use linear::Weight;

use super::{
    DeviceError, HiddenAt, Ops, PAGE_POSITIONS, PageId, PageLayout, Pairing, Product, RopeSpec,
    RowsSpec,
};
use crate::store::{Tensor, WeightType};
use arena::TileMut;
use disjoint::Disjoint;
use linear::{Input, Job};
use quantised::{Activations, BLOCK};
use rayon::prelude::*;
use std::sync::Arc;

/// The processor as a device.
pub struct Cpu {
    tier: Tier,
    threads: usize,
    pool: Arc<rayon::ThreadPool>,
    /// The quantised input of the product at hand.
    quantised: Vec<Activations>,
}

impl Cpu {
    /// A device that works with `threads` threads (at least 1) in the fastest form there is.
    pub fn new(threads: usize) -> Result<Self, DeviceError> {
        Self::with_tier(threads, Tier::detect())
    }

    /// As [`Cpu::new`], in a given form.
    pub fn with_tier(threads: usize, tier: Tier) -> Result<Self, DeviceError> {
        let threads = threads.max(1);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("unsay-cpu-{i}"))
            .build()
            .map_err(|error| DeviceError::Threads { threads, reason: error.to_string() })?;
        Ok(Self { tier, threads, pool: Arc::new(pool), quantised: Vec::new() })
    }

    /// Another device on the same threads, for another model.
    pub fn beside(&self) -> Self {
        let Self { tier, threads, ref pool, .. } = *self;
        Self { tier, threads, pool: Arc::clone(pool), quantised: Vec::new() }
    }

    /// The form that the kernels run in.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    fn quantise(&mut self, input: &[f32], rows: usize, columns: usize) {
        let (tier, blocks) = (self.tier, columns / BLOCK);
        self.quantised.resize(self.quantised.len().max(rows * blocks), Activations::default());
        let out = self.quantised[..rows * blocks].par_chunks_mut(blocks);
        out.zip(input.par_chunks(columns)).with_min_len(16).for_each(|(out, x)| {
            quantised::quantise_row(tier, x, out);
        });
    }

    /// Products of `rows` rows, `input [rows][inputs]`.
    fn multiply(&mut self, input: &[f32], rows: usize, jobs: &[Job<'_>]) {
        let columns = jobs.first().map_or(0, |job| job.weight.inputs);
        assert!(jobs.iter().all(|job| job.weight.inputs == columns), "products of one input");
        let input = &input[..rows * columns];
        if jobs.iter().any(|job| job.weight.is_quantised()) {
            self.quantise(input, rows, columns);
        }
        let input = Input { rows, plain: input, quantised: &self.quantised };
        linear::multiply(self.tier, self.threads, &input, jobs);
    }
}

/// Rows of f32 numbers.
pub struct Matrix {
    data: Vec<f32>,
    width: usize,
}

impl Matrix {
    fn rows(&self, count: usize) -> &[f32] {
        &self.data[..count * self.width]
    }

    fn rows_mut(&mut self, count: usize) -> &mut [f32] {
        &mut self.data[..count * self.width]
    }
}

/// The rows of a pass and how attention divides them.
pub struct Rows {
    tokens: Vec<u32>,
    slots: Vec<usize>,
    positions: Vec<usize>,
    tables: Vec<Vec<PageId>>,
    /// Rows that follow each other in one sequence: (first row, count).
    runs: Vec<(usize, usize)>,
}

/// Rows of a run share the widening of a tile; more of them need more working memory.
const RUN: usize = 16;

impl Rows {
    fn len(&self) -> usize {
        self.tokens.len()
    }

    fn place(&self, row: usize) -> HiddenAt {
        let position = self.positions[row];
        HiddenAt {
            page: self.tables[self.slots[row]][position / PAGE_POSITIONS],
            offset: position % PAGE_POSITIONS,
        }
    }
}

fn runs(slots: &[usize], positions: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for row in 0..slots.len() {
        match runs.last_mut() {
            Some((first, count))
                if *count < RUN
                    && slots[*first] == slots[row]
                    && positions[*first] + *count == positions[row] =>
            {
                *count += 1;
            }
            _ => runs.push((row, 1)),
        }
    }
    runs
}

/// Cosines and sines, `[positions][head_dim / 2]`.
pub struct Rope {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
    pairing: Pairing,
}

impl Rope {
    fn new(spec: RopeSpec) -> Result<Self, DeviceError> {
        let half = spec.head_dim / 2;
        let what = "the table of rotations";
        let len = half.checked_mul(spec.positions).ok_or(DeviceError::TooLarge { what })?;
        let (mut cos, mut sin) = (reserved(len, what)?, reserved(len, what)?);
        let speeds: Vec<f64> = (0..half)
            .map(|i| libm::pow(spec.base, -2.0 * i as f64 / spec.head_dim as f64))
            .collect();
        for position in 0..spec.positions {
            for speed in &speeds {
                let angle = position as f64 * speed;
                cos.push(libm::cos(angle) as f32);
                sin.push(libm::sin(angle) as f32);
            }
        }
        Ok(Self { cos, sin, half, pairing: spec.pairing })
    }

    fn turn(&self, tier: Tier, heads: &mut [f32], position: usize) {
        let angles = position * self.half..(position + 1) * self.half;
        let (cos, sin) = (&self.cos[angles.clone()], &self.sin[angles]);
        for head in heads.chunks_exact_mut(2 * self.half) {
            float::rotate(tier, head, cos, sin, self.pairing);
        }
    }
}

/// An empty vector with room for `len` numbers.
fn reserved(len: usize, what: &'static str) -> Result<Vec<f32>, DeviceError> {
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(len).map_err(|_| DeviceError::OutOfMemory {
        what,
        bytes: len.saturating_mul(4),
        source: std::io::ErrorKind::OutOfMemory.into(),
    })?;
    Ok(numbers)
}

/// Numbers in rows that are worth waking a second thread for.
const WORTH_A_THREAD: usize = 1 << 14;

/// Runs `work` for every row of `out`, on several threads where there is enough to do.
fn each_row(out: &mut [f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
    if out.len() < 2 * WORTH_A_THREAD {
        out.chunks_exact_mut(width).enumerate().for_each(|(i, row)| work(i, row));
    } else {
        let rows = out.par_chunks_exact_mut(width).with_min_len(WORTH_A_THREAD.div_ceil(width));
        rows.enumerate().for_each(|(i, row)| work(i, row));
    }
}

fn store_head(tier: Tier, tile: TileMut<'_>, offset: usize, x: &[f32]) {
    let place = offset * x.len()..(offset + 1) * x.len();
    match tile {
        TileMut::F16(tile) => float::round_f16(tier, x, &mut tile[place]),
        TileMut::F32(tile) => tile[place].copy_from_slice(x),
    }
}

impl Ops for Cpu {
    type Buffer = Matrix;
    type Weight = Weight;
    type Arena = Arena;
    type Rope = Rope;
    type Rows = Rows;

    fn buffer(&self, rows: usize, width: usize) -> Result<Matrix, DeviceError> {
        let what = "working memory";
        let len = rows.checked_mul(width).ok_or(DeviceError::TooLarge { what })?;
        let mut data = reserved(len, what)?;
        data.resize(len, 0.0);
        Ok(Matrix { data, width })
    }

    fn upload(&self, numbers: &[f32]) -> Result<Matrix, DeviceError> {
        Ok(Matrix { data: numbers.to_vec(), width: numbers.len() })
    }

    fn weight_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize {
        Weight::held_bytes(kind, outputs, inputs)
    }

    fn scratch_bytes(rows: usize, inputs: usize) -> usize {
        rows * inputs.div_ceil(BLOCK) * size_of::<Activations>()
    }

    fn weight(&self, tensor: &Tensor) -> Result<Weight, DeviceError> {
        self.pool.install(|| Weight::new(tensor))
    }

    fn arena(&self, layout: PageLayout, pages: usize) -> Result<Arena, DeviceError> {
        Arena::new(layout, pages)
    }

    fn rope(&self, spec: RopeSpec) -> Result<Rope, DeviceError> {
        Rope::new(spec)
    }

    fn rows(&self, spec: RowsSpec<'_>) -> Result<Rows, DeviceError> {
        Ok(Rows {
            tokens: spec.tokens.to_vec(),
            slots: spec.slots.to_vec(),
            positions: spec.positions.to_vec(),
            tables: spec.tables.iter().map(|table| table.to_vec()).collect(),
            runs: runs(spec.slots, spec.positions),
        })
    }

    fn within<R: Send>(&mut self, work: impl FnOnce(&mut Self) -> R + Send) -> R {
        let pool = Arc::clone(&self.pool);
        pool.install(|| work(self))
    }

    fn embed(&mut self, table: &Weight, rows: &Rows, out: &mut Matrix) {
        let width = out.width;
        each_row(out.rows_mut(rows.len()), width, |i, out| {
            table.row(rows.tokens[i] as usize, out);
        });
    }

    fn add_rms_norm(
        &mut self,
        rows: &Rows,
        stream: &mut Matrix,
        delta: Option<&Matrix>,
        weight: &Matrix,
        eps: f32,
        out: &mut Matrix,
    ) {
        let (tier, width) = (self.tier, stream.width);
        if let Some(delta) = delta {
            let delta = delta.rows(rows.len());
            each_row(stream.rows_mut(rows.len()), width, |i, stream| {
                float::add(tier, stream, &delta[i * width..(i + 1) * width]);
            });
        }
        let stream = stream.rows(rows.len());
        each_row(out.rows_mut(rows.len()), width, |i, out| {
            out.copy_from_slice(&stream[i * width..(i + 1) * width]);
            float::rms_norm(tier, out, weight.rows(1), eps);
        });
    }

    fn linear(&mut self, rows: &Rows, input: &Matrix, products: &mut [Product<'_, Self>]) {
        let count = rows.len();
        let jobs: Vec<Job<'_>> = products
            .iter_mut()
            .map(|product| {
                let width = product.out.width;
                assert_eq!(width, product.weight.outputs, "a product's width");
                Job {
                    weight: product.weight,
                    bias: product.bias.map(|bias| bias.rows(1)),
                    out: Disjoint::new(product.out.rows_mut(count), count, width),
                }
            })
            .collect();
        self.multiply(input.rows(count), count, &jobs);
    }

    fn head_rms_norm(&mut self, rows: &Rows, x: &mut Matrix, weight: &Matrix, eps: f32) {
        let (tier, width) = (self.tier, x.width);
        each_row(x.rows_mut(rows.len()), width, |_, row| {
            for head in row.chunks_exact_mut(weight.width) {
                float::rms_norm(tier, head, weight.rows(1), eps);
            }
        });
    }

    fn rotate_and_store(
        &mut self,
        rows: &Rows,
        rope: &Rope,
        layer: usize,
        q: &mut Matrix,
        k: &mut Matrix,
        v: &Matrix,
        arena: &mut Arena,
    ) {
        let tier = self.tier;
        for x in [q, &mut *k] {
            let width = x.width;
            each_row(x.rows_mut(rows.len()), width, |i, row| {
                rope.turn(tier, row, rows.positions[i]);
            });
        }
        let head_dim = arena.layout().head_dim;
        let keys = k.rows(rows.len()).chunks_exact(k.width);
        for (row, (k, v)) in keys.zip(v.rows(rows.len()).chunks_exact(v.width)).enumerate() {
            let HiddenAt { page, offset } = rows.place(row);
            let heads = k.chunks_exact(head_dim).zip(v.chunks_exact(head_dim));
            for (head, (k, v)) in heads.enumerate() {
                store_head(tier, arena.keys_mut(page, layer, head), offset, k);
                store_head(tier, arena.values_mut(page, layer, head), offset, v);
            }
        }
    }

    fn attention(
        &mut self,
        rows: &Rows,
        layer: usize,
        q: &Matrix,
        arena: &Arena,
        out: &mut Matrix,
    ) {
        let (tier, width, count) = (self.tier, q.width, rows.len());
        let kv_heads = arena.layout().kv_heads;
        let group = width / arena.layout().head_dim / kv_heads;
        let queries = q.rows(count);
        let out = Disjoint::new(out.rows_mut(count), count, width);
        let attend = |scratch: &mut attention::Scratch, task: usize| {
            let (first, len) = rows.runs[task / kv_heads];
            let run = attention::Run {
                arena,
                table: &rows.tables[rows.slots[first]],
                layer,
                kv_head: task % kv_heads,
                group,
                position: rows.positions[first],
                queries: &queries[first * width..(first + len) * width],
                width,
                first_row: first,
                out: &out,
            };
            attention::attend(tier, &run, scratch);
        };
        let tasks = rows.runs.len() * kv_heads;
        if self.threads == 1 {
            let mut scratch = attention::Scratch::default();
            (0..tasks).for_each(|task| attend(&mut scratch, task));
        } else {
            let tasks = (0..tasks).into_par_iter();
            tasks.for_each_init(attention::Scratch::default, attend);
        }
    }

    fn swiglu(&mut self, rows: &Rows, gate: &mut Matrix, up: &Matrix) {
        let (tier, width) = (self.tier, gate.width);
        let up = up.rows(rows.len());
        each_row(gate.rows_mut(rows.len()), width, |i, gate| {
            float::swiglu(tier, gate, &up[i * width..(i + 1) * width]);
        });
    }

    fn keep_hidden(&mut self, rows: &Rows, x: &Matrix, arena: &mut Arena) -> Vec<usize> {
        let mut bad = Vec::new();
        for (row, x) in x.rows(rows.len()).chunks_exact(x.width).enumerate() {
            arena.hidden_mut(rows.place(row)).copy_from_slice(x);
            if !float::all_finite(self.tier, x) {
                bad.push(row);
            }
        }
        bad
    }

    fn head(&mut self, weight: &Weight, arena: &Arena, places: &[HiddenAt], out: &mut [f32]) {
        /// Places whose hidden rows are gathered at once.
        const GATHERED: usize = 128;
        let chunks = places.chunks(GATHERED).zip(out.chunks_mut(GATHERED * weight.outputs));
        for (places, out) in chunks {
            let mut input = Vec::with_capacity(places.len() * weight.inputs);
            for place in places {
                input.extend_from_slice(arena.hidden(*place));
            }
            let out = Disjoint::new(out, places.len(), weight.outputs);
            self.multiply(&input, places.len(), &[Job { weight, bias: None, out }]);
        }
    }

    fn copy_page(&mut self, arena: &mut Arena, from: PageId, to: PageId) {
        arena.copy_page(from, to);
    }

    fn discard_page(&mut self, arena: &mut Arena, page: PageId) {
        arena.discard_page(page);
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        if count < 2 || self.threads == 1 {
            (0..count).for_each(work);
        } else {
            self.pool.install(|| (0..count).into_par_iter().with_max_len(1).for_each(work));
        }
    }
}
