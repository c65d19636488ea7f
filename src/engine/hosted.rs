//! A hosted model: its decoder, its pages and the prefix tree over them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::EngineError;
use super::pages::PagePool;
use super::prefix::Prefix;
use super::sequence::Sequence;
use super::tree::PrefixTree;
use super::waste::ForwardedPrefixes;
use crate::device::{PAGE_POSITIONS, PageId};
use crate::model::{AdapterId, Decoder, HiddenAt, ModelError};
use crate::text::{TokenId, Tokenizer};

/// The bytes that a token stands for in text, as stop strings see them.
pub trait TokenBytes: Send + Sync {
    fn token_bytes(&self, id: TokenId) -> Vec<u8>;
}

impl<F: Fn(TokenId) -> Vec<u8> + Send + Sync> TokenBytes for F {
    fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        self(id)
    }
}

impl TokenBytes for Tokenizer {
    fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        // Models may have more rows than the vocabulary has tokens; those have no text.
        self.token_bytes(id).unwrap_or_default().to_vec()
    }
}

/// A model as it is given to the engine.
pub struct Hosted {
    /// The name by which sessions are opened; the ledger's rows bear it.
    pub name: String,
    pub decoder: Box<dyn Decoder>,
    pub tokens: Arc<dyn TokenBytes>,
    /// The ids that end every reply of this model.
    pub stop_ids: Vec<TokenId>,
    /// The decoder's adapters.
    pub adapters: Vec<AdapterId>,
}

/// What callers may know of a hosted model.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ModelInfo {
    pub name: String,
    pub vocab_size: usize,
    /// Most positions of one sequence.
    pub context_length: usize,
    /// Pages in the arena, for all sequences together.
    pub page_count: usize,
    /// Bytes of one page.
    pub page_bytes: usize,
    #[serde(skip)]
    pub adapters: Vec<AdapterId>,
}

/// Pages of a model at some moment. What is neither free nor cached is held by calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct PageUse {
    pub free: usize,
    /// Hold prefixes that no call in flight stands on; given up when their memory is wanted.
    pub cached: usize,
    pub total: usize,
    /// Pages with memory behind them, free or not.
    pub resident: usize,
}

/// A hosted model as the engine's thread holds it.
pub(super) struct Model {
    pub(super) info: ModelInfo,
    pub(super) tokens: Arc<dyn TokenBytes>,
    pub(super) stop_ids: BTreeSet<TokenId>,
    pub(super) pool: PagePool,
    pub(super) tree: PrefixTree,
    pub(super) decoder: Box<dyn Decoder>,
    /// Rows that went through a forward pass: the counter that the ledger is checked against.
    pub(super) forwarded_rows: u64,
    /// Partly filled pages that were copied.
    pub(super) copied_pages: u64,
    /// All prefixes ever forwarded, where the waste is measured.
    pub(super) forwarded: Option<ForwardedPrefixes>,
}

/// For each page, how many of the prefixes that left their pages are remembered. They take some
/// eight thousand bytes a page, which has hundreds of thousands.
const REMEMBERED_A_PAGE: usize = 8 * PAGE_POSITIONS;

/// So many are remembered at least: some four million bytes.
const REMEMBERED: usize = 1 << 16;

impl Model {
    /// Takes over a model, after checking what can be checked.
    pub(super) fn new(hosted: Hosted, measure_waste: bool) -> Result<Self, EngineError> {
        let Hosted { name, decoder, tokens, stop_ids, adapters } = hosted;
        let info = ModelInfo {
            vocab_size: decoder.vocab_size(),
            context_length: decoder.context_length(),
            page_count: decoder.page_count(),
            page_bytes: decoder.page_bytes(),
            adapters,
            name,
        };
        let bad = |what: String| EngineError::BadModel { model: info.name.clone(), what };
        for (what, size) in [
            ("vocabulary", info.vocab_size),
            ("context", info.context_length),
            ("arena of pages", info.page_count),
        ] {
            if size == 0 || u32::try_from(size).is_err() {
                return Err(bad(format!("its {what} has the size {size}, outside 1..2³²")));
            }
        }
        if let Some(id) = stop_ids.iter().find(|id| id.index() >= info.vocab_size) {
            let size = info.vocab_size;
            return Err(bad(format!("stop id {} is outside its vocabulary of {size}", id.0)));
        }
        Ok(Self {
            tokens,
            stop_ids: stop_ids.into_iter().collect(),
            pool: PagePool::new(info.page_count),
            tree: PrefixTree::new(
                info.page_count.saturating_mul(REMEMBERED_A_PAGE).max(REMEMBERED),
            ),
            decoder,
            forwarded_rows: 0,
            copied_pages: 0,
            forwarded: measure_waste.then(ForwardedPrefixes::default),
            info,
        })
    }

    /// Pins what is computed of a sequence, up to its first `limit` ids.
    pub(super) fn resume(
        &mut self,
        sequence: &mut Sequence,
        adapter: Option<AdapterId>,
        limit: usize,
    ) {
        let mut path = std::mem::take(&mut sequence.path);
        let known = sequence.computed.min(limit);
        let computed = self.tree.resume(adapter, &sequence.ids()[..limit], &mut path, known);
        sequence.path = path;
        sequence.reach(computed);
        self.reclaim();
    }

    /// Brings a pinned sequence forward by what others have computed of it meanwhile, up to its
    /// first `limit` ids.
    pub(super) fn follow(
        &mut self,
        sequence: &mut Sequence,
        adapter: Option<AdapterId>,
        limit: usize,
    ) {
        let mut path = std::mem::take(&mut sequence.path);
        let ids = &sequence.ids()[..limit];
        let computed = self.tree.follow(adapter, ids, &mut path, sequence.computed);
        sequence.path = path;
        sequence.reach(computed);
        self.reclaim();
    }

    /// How many of a pinned sequence's first `limit` ids are computed, by whomever.
    pub(super) fn reach(
        &mut self,
        sequence: &Sequence,
        adapter: Option<AdapterId>,
        limit: usize,
    ) -> usize {
        let ids = &sequence.ids()[..limit];
        self.tree.reach(adapter, ids, &sequence.path, sequence.computed)
    }

    /// Unpins a sequence.
    pub(super) fn release(&mut self, sequence: &Sequence, clock: u64) {
        self.tree.release(&sequence.path, clock);
        self.reclaim();
    }

    /// Puts rows that were forwarded into the tree: a pinned sequence's positions up to `end`, of
    /// which those that its pages do not hold lie in `fresh`.
    pub(super) fn place(
        &mut self,
        sequence: &mut Sequence,
        adapter: Option<AdapterId>,
        end: usize,
        fresh: Vec<PageId>,
        clock: u64,
    ) {
        let mut path = std::mem::take(&mut sequence.path);
        let ids = sequence.ids();
        let mut at = sequence.computed;
        if !at.is_multiple_of(PAGE_POSITIONS)
            && at < end
            && let Some(last) = path.pop()
        {
            let next = end.min(at.next_multiple_of(PAGE_POSITIONS));
            path.push(self.tree.extend(last, &ids[at..next], clock));
            at = next;
        }
        let mut fresh = fresh.into_iter();
        while at < end
            && let Some(page) = fresh.next()
        {
            let next = end.min(at + PAGE_POSITIONS);
            path.push(self.tree.insert(adapter, &path, &ids[at..next], page));
            at = next;
        }
        fresh.for_each(|page| self.pool.give(page));
        sequence.path = path;
        sequence.reach(at);
        self.reclaim();
    }

    /// Gives the pages that the tree no longer needs back to the pool.
    pub(super) fn reclaim(&mut self) {
        while let Some(page) = self.tree.take_spare() {
            self.pool.give(page);
        }
    }

    /// The pages of a pinned sequence.
    pub(super) fn table(&self, sequence: &Sequence) -> Vec<PageId> {
        sequence.path.iter().map(|&node| self.tree.page(node)).collect()
    }

    /// Where the hidden row of a computed position of a pinned sequence is kept.
    pub(super) fn hidden_at(&self, sequence: &Sequence, position: usize) -> HiddenAt {
        let node = sequence.path[position / PAGE_POSITIONS];
        HiddenAt { page: self.tree.page(node), offset: position % PAGE_POSITIONS }
    }

    /// The prefix of what is computed of a pinned sequence.
    pub(super) fn prefix(&self, sequence: &Sequence, adapter: Option<AdapterId>) -> Prefix {
        self.tree.prefix(adapter, &sequence.path, sequence.computed)
    }

    /// Gives up all prefixes that no call stands on.
    pub(super) fn clear_cache(&mut self) {
        while let Some(page) = self.tree.evict() {
            self.pool.give(page);
        }
    }

    pub(super) fn page_use(&self) -> PageUse {
        let pool = &self.pool;
        let cached = self.tree.unpinned();
        PageUse { free: pool.free(), cached, total: pool.total(), resident: pool.resident() }
    }

    pub(super) fn failed(&self, error: &ModelError) -> EngineError {
        EngineError::Model { model: self.info.name.clone(), what: error.to_string() }
    }
}

/// Refuses ids that the model does not have.
pub(super) fn check_ids(info: &ModelInfo, ids: &[TokenId]) -> Result<(), EngineError> {
    match ids.iter().find(|id| id.index() >= info.vocab_size) {
        None => Ok(()),
        Some(&id) => Err(EngineError::OutsideVocabulary {
            model: info.name.clone(),
            id,
            vocab_size: info.vocab_size,
        }),
    }
}
