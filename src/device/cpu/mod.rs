//! The operations on this machine's processor: kernels in two forms with equal bits ([`Tier`]) and
//! a pool of threads.

mod arena;
mod attention;
mod convert;
mod dense;
mod disjoint;
mod float;
mod lanes;
mod linear;
pub mod noise;
mod panels;
mod pool;
#[cfg(test)]
mod pool_model;
mod quantised;
pub mod softmax;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use arena::Arena;
pub(crate) use convert::ggml_type;
pub use lanes::Tier;
pub use linear::Weight;

use super::{
    Added, DeviceError, HiddenAt, LowRank, Ops, PAGE_POSITIONS, PageId, PageLayout, Pairing,
    Product, RopeSpec, RowsSpec,
};
use crate::store::{Tensor, WeightType};
use arena::TileMut;
use disjoint::Disjoint;
use linear::{Input, Job};
use pool::Pool;
use quantised::{Activations, BLOCK};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The processor as a device.
pub struct Cpu {
    tier: Tier,
    pool: Arc<Pool>,
    /// The quantised input of the product at hand, where the matrix does not have it.
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
        let pool = Pool::new(threads)
            .map_err(|error| DeviceError::Threads { threads, reason: error.to_string() })?;
        Ok(Self { tier, pool: Arc::new(pool), quantised: Vec::new() })
    }

    /// Another device on the same threads, for another model.
    pub fn beside(&self) -> Self {
        Self { tier: self.tier, pool: Arc::clone(&self.pool), quantised: Vec::new() }
    }

    /// The form that the kernels run in.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Runs `work` for the numbers below `rows`; each costs about as much as `cost` additions.
    fn each_row(&self, rows: usize, cost: usize, work: impl Fn(usize) + Sync) {
        /// Additions that are worth a chunk of their own, a microsecond or two.
        const CHUNK: usize = 1 << 13;
        let step = CHUNK.div_ceil(cost.max(1));
        if rows <= step {
            (0..rows).for_each(work);
        } else {
            self.pool.run(rows.div_ceil(step), &|chunk| {
                (chunk * step..rows).take(step).for_each(&work);
            });
        }
    }

    /// Quantises `input [rows][columns]` into working memory.
    fn quantise(&mut self, input: &[f32], rows: usize, columns: usize) {
        let (tier, blocks) = (self.tier, columns / BLOCK);
        let mut out = std::mem::take(&mut self.quantised);
        out.resize(out.len().max(rows * blocks), Activations::default());
        let parts = Disjoint::new(&mut out, rows, blocks);
        self.each_row(rows, columns, |row| {
            // SAFETY: every row is worked on once.
            let out = unsafe { parts.part(row, 0, blocks) };
            quantised::quantise_row(tier, &input[row * columns..(row + 1) * columns], out);
        });
        self.quantised = out;
    }

    /// Products of `rows` rows, `input [rows][inputs]`; `ready` are the same rows quantised, where
    /// they are at hand.
    fn multiply(
        &mut self,
        input: &[f32],
        ready: Option<&[Activations]>,
        rows: usize,
        jobs: &[Job<'_>],
    ) {
        let columns = jobs.first().map_or(0, |job| job.weight.inputs);
        assert!(jobs.iter().all(|job| job.weight.inputs == columns), "products of one input");
        let input = &input[..rows * columns];
        if ready.is_none() && needs_blocks(jobs) {
            self.quantise(input, rows, columns);
        }
        let quantised = ready.unwrap_or(&self.quantised);
        linear::multiply(self.tier, &self.pool, &Input { rows, plain: input, quantised }, jobs);
    }
}

fn needs_blocks(jobs: &[Job<'_>]) -> bool {
    jobs.iter().any(|job| job.weight.is_quantised())
}

/// Rows of f32 numbers and, once a product asked for them, the same rows in blocks of 8-bit integers:
/// the operation that writes the rows quantises them in the same pass.
pub struct Matrix {
    data: Vec<f32>,
    width: usize,
    blocks: Vec<Activations>,
    /// A product with block-quantised weights read these rows.
    wanted: AtomicBool,
    /// `blocks` are those of `data`.
    ready: bool,
}

impl Matrix {
    fn new(data: Vec<f32>, width: usize) -> Self {
        let wanted = AtomicBool::new(false);
        Self { data, width, blocks: Vec::new(), wanted, ready: false }
    }

    fn rows(&self, count: usize) -> &[f32] {
        &self.data[..count * self.width]
    }

    fn rows_mut(&mut self, count: usize) -> &mut [f32] {
        self.ready = false;
        &mut self.data[..count * self.width]
    }

    /// `count` rows that will all be written, in `parts` parts each, with their blocks where those
    /// are wanted and each part is whole blocks.
    fn written(
        &mut self,
        count: usize,
        parts: usize,
    ) -> (Disjoint<'_, f32>, Option<Disjoint<'_, Activations>>) {
        let whole = self.width.is_multiple_of(parts * BLOCK);
        self.ready = whole && self.wanted.load(Ordering::Relaxed);
        let (width, blocks) = (self.width, self.width / BLOCK);
        let out = Disjoint::new(&mut self.data, count, width);
        if !self.ready {
            return (out, None);
        }
        if self.blocks.len() < count * blocks {
            self.blocks.resize(count * blocks, Activations::default());
        }
        (out, Some(Disjoint::new(&mut self.blocks, count, blocks)))
    }

    /// The blocks of `count` rows, if they are at hand.
    fn ready(&self, count: usize) -> Option<&[Activations]> {
        self.wanted.store(true, Ordering::Relaxed);
        self.ready.then(|| &self.blocks[..count * (self.width / BLOCK)])
    }
}

/// The rows of a pass and how attention divides them.
pub struct Rows {
    tokens: Vec<u32>,
    slots: Vec<usize>,
    positions: Vec<usize>,
    tables: Vec<Vec<PageId>>,
    /// Empty: no row has one.
    adapters: Vec<Option<usize>>,
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

/// Cosines and sines times the scale, `[positions][head_dim / 2]`.
pub struct Rope {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
    pairing: Pairing,
}

impl Rope {
    fn new(spec: RopeSpec<'_>) -> Result<Self, DeviceError> {
        let half = spec.speeds.len();
        let what = "the table of rotations";
        let len = half.checked_mul(spec.positions).ok_or(DeviceError::TooLarge { what })?;
        let (mut cos, mut sin) = (reserved(len, what)?, reserved(len, what)?);
        for position in 0..spec.positions {
            for speed in spec.speeds {
                let angle = position as f64 * speed;
                cos.push((spec.scale * libm::cos(angle)) as f32);
                sin.push((spec.scale * libm::sin(angle)) as f32);
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

fn store_head(tier: Tier, tile: TileMut<'_>, offset: usize, x: &[f32]) {
    let place = offset * x.len()..(offset + 1) * x.len();
    match tile {
        TileMut::F16(tile) => float::round_f16(tier, x, &mut tile[place]),
        TileMut::Bf16(tile) => float::round_bf16(tier, x, &mut tile[place]),
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
        Ok(Matrix::new(data, width))
    }

    fn upload(&self, numbers: &[f32]) -> Result<Matrix, DeviceError> {
        Ok(Matrix::new(numbers.to_vec(), numbers.len()))
    }

    fn weight_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize {
        Weight::held_bytes(kind, outputs, inputs)
    }

    fn scratch_bytes(rows: usize, inputs: usize) -> usize {
        rows * inputs.div_ceil(BLOCK) * size_of::<Activations>()
    }

    fn weight(&self, tensor: &Tensor) -> Result<Weight, DeviceError> {
        Weight::new(&self.pool, tensor)
    }

    fn converted_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize {
        Weight::converted_bytes(kind, outputs, inputs)
    }

    fn converted(
        &self,
        tensor: &Tensor,
        kind: WeightType,
        added: Option<Added<'_>>,
    ) -> Result<Weight, DeviceError> {
        Weight::converted(&self.pool, tensor, kind, added)
    }

    fn arena(&self, layout: PageLayout, pages: usize) -> Result<Arena, DeviceError> {
        Arena::new(layout, pages)
    }

    fn rope(&self, spec: RopeSpec<'_>) -> Result<Rope, DeviceError> {
        Rope::new(spec)
    }

    fn rows(&self, spec: RowsSpec<'_>) -> Result<Rows, DeviceError> {
        Ok(Rows {
            tokens: spec.tokens.to_vec(),
            slots: spec.slots.to_vec(),
            positions: spec.positions.to_vec(),
            tables: spec.tables.iter().map(|table| table.to_vec()).collect(),
            adapters: spec.adapters.to_vec(),
            runs: runs(spec.slots, spec.positions),
        })
    }

    fn within<R: Send>(&mut self, work: impl FnOnce(&mut Self) -> R + Send) -> R {
        // The caller is one of the pool's threads wherever it is.
        work(self)
    }

    fn embed(&mut self, table: &Weight, rows: &Rows, out: &mut Matrix) {
        let width = out.width;
        let out = Disjoint::new(out.rows_mut(rows.len()), rows.len(), width);
        self.each_row(rows.len(), 8 * width, |row| {
            // SAFETY: every row is worked on once.
            table.row(rows.tokens[row] as usize, unsafe { out.part(row, 0, width) });
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
        let (tier, width, count) = (self.tier, stream.width, rows.len());
        let delta = delta.map(|delta| delta.rows(count));
        let stream = Disjoint::new(stream.rows_mut(count), count, width);
        let (out, blocks) = out.written(count, 1);
        self.each_row(count, 3 * width, |row| {
            // SAFETY: every row is worked on once.
            let (stream, out) = unsafe { (stream.part(row, 0, width), out.part(row, 0, width)) };
            let blocks = blocks.as_ref().map(|blocks| {
                // SAFETY: as above.
                unsafe { blocks.part(row, 0, width / BLOCK) }
            });
            let delta = delta.map(|delta| &delta[row * width..(row + 1) * width]);
            float::add_rms_norm(tier, stream, delta, weight.rows(1), eps, out, blocks);
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
        let ready = if needs_blocks(&jobs) { input.ready(count) } else { None };
        self.multiply(input.rows(count), ready, count, &jobs);
    }

    fn add_low_rank(
        &mut self,
        rows: &Rows,
        input: &Matrix,
        changes: &[Option<LowRank<'_, Self>>],
        out: &mut Matrix,
    ) {
        let change = |row: usize| changes[(*rows.adapters.get(row)?)?].as_ref();
        let adapted: Vec<usize> = (0..rows.len()).filter(|&row| change(row).is_some()).collect();
        let (tier, inputs, outputs) = (self.tier, input.width, out.width);
        let rank = changes.iter().flatten().map(|change| change.down.width / inputs).max();
        let input = input.rows(rows.len());
        let out = Disjoint::new(out.rows_mut(rows.len()), rows.len(), outputs);
        self.each_row(adapted.len(), rank.unwrap_or(0) * (inputs + outputs), |index| {
            let row = adapted[index];
            let Some(change) = change(row) else { return };
            let x = &input[row * inputs..(row + 1) * inputs];
            // SAFETY: every row is worked on once.
            let out = unsafe { out.part(row, 0, outputs) };
            float::add_low_rank(tier, x, change.down.rows(1), change.up.rows(1), out);
        });
    }

    fn head_rms_norm(&mut self, rows: &Rows, x: &mut Matrix, weight: &Matrix, eps: f32) {
        let (tier, width, count) = (self.tier, x.width, rows.len());
        let x = Disjoint::new(x.rows_mut(count), count, width);
        self.each_row(count, 2 * width, |row| {
            // SAFETY: every row is worked on once.
            for head in unsafe { x.part(row, 0, width) }.chunks_exact_mut(weight.width) {
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
        let (tier, count) = (self.tier, rows.len());
        let (q_width, k_width) = (q.width, k.width);
        let q = Disjoint::new(q.rows_mut(count), count, q_width);
        let keys = Disjoint::new(k.rows_mut(count), count, k_width);
        self.each_row(count, 2 * (q_width + k_width), |row| {
            // SAFETY: every row is worked on once.
            let (q, k) = unsafe { (q.part(row, 0, q_width), keys.part(row, 0, k_width)) };
            rope.turn(tier, q, rows.positions[row]);
            rope.turn(tier, k, rows.positions[row]);
        });
        let head_dim = arena.layout().head_dim;
        let keys = k.rows(count).chunks_exact(k_width);
        for (row, (k, v)) in keys.zip(v.rows(count).chunks_exact(v.width)).enumerate() {
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
        thread_local! {
            static SCRATCH: RefCell<attention::Scratch> = RefCell::default();
        }
        let (tier, width, count) = (self.tier, q.width, rows.len());
        let kv_heads = arena.layout().kv_heads;
        let group = width / arena.layout().head_dim / kv_heads;
        let queries = q.rows(count);
        let (out, blocks) = out.written(count, kv_heads);
        let runs = rows.runs.len();
        // Head by head, so that sequences which share pages meet them in the cache; the last runs
        // of a prompt, which reach farthest back, first.
        self.pool.run(runs * kv_heads, &|task| {
            let (first, len) = rows.runs[runs - 1 - task % runs];
            let run = attention::Run {
                arena,
                table: &rows.tables[rows.slots[first]],
                layer,
                kv_head: task / runs,
                group,
                position: rows.positions[first],
                queries: &queries[first * width..(first + len) * width],
                width,
                first_row: first,
                out: &out,
                blocks: blocks.as_ref(),
            };
            SCRATCH.with_borrow_mut(|scratch| attention::attend(tier, &run, scratch));
        });
    }

    fn swiglu(&mut self, rows: &Rows, gate: &mut Matrix, up: &Matrix) {
        let (tier, width, count) = (self.tier, gate.width, rows.len());
        let up = up.rows(count);
        let (gate, blocks) = gate.written(count, 1);
        self.each_row(count, 8 * width, |row| {
            // SAFETY: every row is worked on once.
            let gate = unsafe { gate.part(row, 0, width) };
            let blocks = blocks.as_ref().map(|blocks| {
                // SAFETY: as above.
                unsafe { blocks.part(row, 0, width / BLOCK) }
            });
            float::swiglu(tier, gate, &up[row * width..(row + 1) * width], blocks);
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
            self.multiply(&input, None, places.len(), &[Job { weight, bias: None, out }]);
        }
    }

    fn copy_page(&mut self, arena: &mut Arena, from: PageId, to: PageId) {
        arena.copy_page(from, to);
    }

    fn discard_page(&mut self, arena: &mut Arena, page: PageId) {
        arena.discard_page(page);
    }

    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        self.pool.run(count, work);
    }
}
