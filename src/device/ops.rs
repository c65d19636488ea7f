//! The operations under a decoder's forward pass. A device implements them; `model` composes them.

use super::{DeviceError, HiddenAt, PageId, PageLayout};
use crate::store::{Tensor, WeightType};

/// Which numbers of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pairing {
    /// `2i` with `2i + 1`: GGUF files of the Llama family.
    Interleaved,
    /// `i` with `i + head_dim / 2`: checkpoints in safetensors, GGUF files of the Qwen family.
    Half,
}

/// Rotary position embedding: pair `i` of a head at position `p` turns by `p * speeds[i]` (Su et al.
/// 2021, eq. 15), and both of its numbers are multiplied by `scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec<'a> {
    /// Radians a position, `[head_dim / 2]`.
    pub speeds: &'a [f64],
    /// 1 but for scaled kinds that sharpen attention.
    pub scale: f64,
    pub pairing: Pairing,
    /// Positions that the table must cover.
    pub positions: usize,
}

/// The rows of one pass, all checked: ids inside the vocabulary, positions inside their tables.
#[derive(Clone, Copy)]
pub struct RowsSpec<'a> {
    /// Per row.
    pub tokens: &'a [u32],
    /// Per row: which of `tables` is its sequence's.
    pub slots: &'a [usize],
    /// Per row: position in its sequence.
    pub positions: &'a [usize],
    /// Per slot: pages of positions 0..16, 16..32, ….
    pub tables: &'a [&'a [PageId]],
    /// Per row: the number of its adapter. Empty: no row has one.
    pub adapters: &'a [Option<usize>],
}

/// A low-rank matrix that is added to a weight before it is held: `upᵀ · down`.
#[derive(Clone, Copy)]
pub struct Added<'a> {
    /// `[rank, inputs]`
    pub down: &'a [f32],
    /// `[rank, outputs]`
    pub up: &'a [f32],
}

/// What an adapter adds to a product of a row: `out += upᵀ · (down · input)` (Hu et al. 2021, eq. 3).
pub struct LowRank<'a, O: Ops> {
    /// `[rank, inputs]`, all in one row.
    pub down: &'a O::Buffer,
    /// `[rank, outputs]`, all in one row; its scale is in it.
    pub up: &'a O::Buffer,
}

/// One product of a shared input: `out = input · weightᵀ + bias`.
pub struct Product<'a, O: Ops> {
    pub weight: &'a O::Weight,
    pub bias: Option<&'a O::Buffer>,
    pub out: &'a mut O::Buffer,
}

/// What a device does for a decoder. All buffers hold f32 rows, one behind the other.
///
/// The result of a row in any operation depends only on that row's operands: never on the number
/// of rows, the neighbours, or how many threads work.
pub trait Ops: Send + Sized {
    /// Rows of f32 numbers on the device.
    type Buffer: Send + Sync;
    /// A matrix `[outputs, inputs]` in the form that the device multiplies fastest.
    type Weight: Send + Sync;
    /// All pages.
    type Arena: Send + Sync;
    /// Cosines and sines of every position.
    type Rope: Send + Sync;
    /// The rows of one pass, on the device.
    type Rows: Send + Sync;

    /// `rows` rows of `width` zeros.
    fn buffer(&self, rows: usize, width: usize) -> Result<Self::Buffer, DeviceError>;

    /// One row with these numbers.
    fn upload(&self, numbers: &[f32]) -> Result<Self::Buffer, DeviceError>;

    /// Bytes of the device's own copy of a matrix; 0 where it is used as it lies in the mapped file.
    fn weight_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize;

    /// Most bytes that `rows` rows of `inputs` numbers take in the form that products read, beside
    /// the rows themselves.
    fn scratch_bytes(rows: usize, inputs: usize) -> usize;

    /// A matrix of a file, `[outputs, inputs]`.
    fn weight(&self, tensor: &Tensor) -> Result<Self::Weight, DeviceError>;

    /// Bytes of a matrix that was converted to `kind`.
    fn converted_bytes(kind: WeightType, outputs: usize, inputs: usize) -> usize;

    /// A matrix of a file, `[outputs, inputs]`, held as `kind`, whose blocks its rows are whole blocks
    /// of; what is added is added in f32 before. Numbers that are not finite are refused.
    fn converted(
        &self,
        tensor: &Tensor,
        kind: WeightType,
        added: Option<Added<'_>>,
    ) -> Result<Self::Weight, DeviceError>;

    /// Room for `pages` pages.
    fn arena(&self, layout: PageLayout, pages: usize) -> Result<Self::Arena, DeviceError>;

    /// The table of rotations, computed in f64 and stored as f32.
    fn rope(&self, spec: RopeSpec<'_>) -> Result<Self::Rope, DeviceError>;

    /// The rows of a pass.
    fn rows(&self, spec: RowsSpec<'_>) -> Result<Self::Rows, DeviceError>;

    /// Runs `work` where the device's threads are at hand; everything below is called inside it.
    fn within<R: Send>(&mut self, work: impl FnOnce(&mut Self) -> R + Send) -> R;

    /// `out[row] = table[token]`, `[rows, hidden]`.
    fn embed(&mut self, table: &Self::Weight, rows: &Self::Rows, out: &mut Self::Buffer);

    /// `stream += delta` where there is one, then
    /// `out = stream / sqrt(mean(stream²) + eps) * weight` (Zhang and Sennrich 2019, eq. 4).
    fn add_rms_norm(
        &mut self,
        rows: &Self::Rows,
        stream: &mut Self::Buffer,
        delta: Option<&Self::Buffer>,
        weight: &Self::Buffer,
        eps: f32,
        out: &mut Self::Buffer,
    );

    /// Products of the same rows, `input [rows, inputs]`, with several matrices.
    fn linear(
        &mut self,
        rows: &Self::Rows,
        input: &Self::Buffer,
        products: &mut [Product<'_, Self>],
    );

    /// Adds to each row of a product of `input` what its adapter changes of it; `changes` by the
    /// adapter's number.
    fn add_low_rank(
        &mut self,
        rows: &Self::Rows,
        input: &Self::Buffer,
        changes: &[Option<LowRank<'_, Self>>],
        out: &mut Self::Buffer,
    );

    /// RMSNorm of every head, `x [rows, heads, head_dim]`, in place; `weight [head_dim]`.
    fn head_rms_norm(
        &mut self,
        rows: &Self::Rows,
        x: &mut Self::Buffer,
        weight: &Self::Buffer,
        eps: f32,
    );

    /// Rotates `q [rows, heads, head_dim]` in place; rotates `k` and rounds it, and rounds `v`
    /// (`[rows, kv_heads, head_dim]`), into the rows' places in their pages.
    #[allow(clippy::too_many_arguments)]
    fn rotate_and_store(
        &mut self,
        rows: &Self::Rows,
        rope: &Self::Rope,
        layer: usize,
        q: &mut Self::Buffer,
        k: &mut Self::Buffer,
        v: &Self::Buffer,
        arena: &mut Self::Arena,
    );

    /// Causal softmax attention over the pages of each row's sequence, `q` and `out`
    /// `[rows, heads, head_dim]`; scores are `q · k / sqrt(head_dim)`. Query heads share key heads
    /// in groups of `heads / kv_heads`.
    fn attention(
        &mut self,
        rows: &Self::Rows,
        layer: usize,
        q: &Self::Buffer,
        arena: &Self::Arena,
        out: &mut Self::Buffer,
    );

    /// `gate = silu(gate) * up`, `[rows, ffn]` (Shazeer 2020, eq. 6).
    fn swiglu(&mut self, rows: &Self::Rows, gate: &mut Self::Buffer, up: &Self::Buffer);

    /// Keeps each row's `x [rows, hidden]` in its place in its page. Answers with the rows that
    /// have a number that is not finite.
    fn keep_hidden(
        &mut self,
        rows: &Self::Rows,
        x: &Self::Buffer,
        arena: &mut Self::Arena,
    ) -> Vec<usize>;

    /// Products of kept hidden rows with the head, `out [places, outputs]` in the caller's memory.
    fn head(
        &mut self,
        weight: &Self::Weight,
        arena: &Self::Arena,
        places: &[HiddenAt],
        out: &mut [f32],
    );

    /// Copies a page, all layers and hidden rows, onto another.
    fn copy_page(&mut self, arena: &mut Self::Arena, from: PageId, to: PageId);

    /// Gives the memory of a page back to the system, as far as it can be; what it held is lost.
    fn discard_page(&mut self, arena: &mut Self::Arena, page: PageId);

    /// Runs `work` once for each number below `count`, on the device's host threads where that
    /// pays.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}
