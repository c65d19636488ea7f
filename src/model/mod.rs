//! A decoder as data (`ModelSpec`), its weights, and the forward pass over rows. Uses `device`,
//! `text` (ids) and `store`.

mod adapter;
mod changes;
mod error;
mod estimate;
mod family;
mod footprint;
mod forward;
mod from_config;
mod from_gguf;
mod last_hidden;
mod names;
mod quantise;
mod rope;
mod spec;
mod weights;

pub use crate::device::HiddenAt;
pub use error::{BatchProblem, ModelError};
pub use estimate::Recipe;
pub use family::Family;
pub use footprint::Footprint;
pub use forward::{LoadOptions, Transformer, load};
pub use names::{LayerTensor, Names};
pub use quantise::{Quantise, Quantised};
pub use rope::{RopeOptions, RopeScaling, Yarn};
pub use spec::ModelSpec;

use crate::device::PageId;
use crate::text::TokenId;

/// A LoRA adapter of a hosted model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(pub u32);

/// One row of a forward pass: a token at a position of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which page table of the batch this row reads and writes.
    pub slot: usize,
    /// Position in the sequence, from 0. Rows of one slot come in rising positions, each one behind
    /// the one before it, and every position before the first of them is already in the slot's
    /// pages.
    pub position: usize,
    pub token: TokenId,
    pub adapter: Option<AdapterId>,
}

/// Ragged rows of many sequences, for one forward pass.
pub struct Batch<'a> {
    pub rows: &'a [Row],
    /// Per slot: the pages that hold positions 0..16, 16..32, … of its sequence. Pages that the
    /// rows write to belong to this slot alone.
    pub tables: &'a [&'a [PageId]],
}

/// A hosted language model with its arena of pages on one device: all that the engine asks for.
///
/// The result of a row depends only on the ids before it in its sequence, bit for bit: not on the
/// other rows of the batch, nor on how a sequence was cut into batches, nor on the threads.
pub trait Decoder: Send {
    fn vocab_size(&self) -> usize;

    /// Most positions that a sequence may have.
    fn context_length(&self) -> usize;

    /// Pages in the arena. Memory is taken as they are first written.
    fn page_count(&self) -> usize;

    /// Bytes of one page.
    fn page_bytes(&self) -> usize;

    /// Whether hidden rows stay with their pages. Where they do not, [`Decoder::logits`] knows the
    /// rows of the last forward pass only.
    fn keeps_hidden(&self) -> bool;

    /// Runs the rows through every layer: writes their keys and values into the pages and keeps
    /// each row's last hidden state (after the final norm, f32) beside them.
    ///
    /// Answers with the rows, in rising order, whose hidden state is not finite: what they wrote is
    /// of no use, and the other rows are right. A batch that breaks a rule is refused before
    /// anything is written.
    fn forward(&mut self, batch: &Batch<'_>) -> Result<Vec<usize>, ModelError>;

    /// Logits `[wanted.len(), vocab_size]` of positions whose hidden rows are kept: one product
    /// with the head. They are not checked for numbers that are not finite.
    fn logits(&mut self, wanted: &[HiddenAt], out: &mut [f32]) -> Result<(), ModelError>;

    /// Copies keys, values and hidden rows of one page, all layers, onto another. Both lie in the
    /// arena.
    fn copy_page(&mut self, from: PageId, to: PageId);

    /// Gives the memory of a page back to the system; what it held is lost.
    fn discard_page(&mut self, page: PageId);

    /// Runs `work` once for each number below `count`, on the decoder's threads where that pays.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}
