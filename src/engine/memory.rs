//! Pages for rows: from the free ones, from memory that free pages of other models hold, from
//! prefixes that nobody stands on. The memory of all pages is one sum over all models.

use super::hosted::Model;
use super::sequence::Sequence;
use crate::device::{PAGE_POSITIONS, PageId};
use crate::model::AdapterId;

/// The hosted models and the bytes that their pages may take together.
pub(super) struct Memory {
    pub(super) models: Vec<Model>,
    /// None: each model may fill its own arena.
    pub(super) page_memory: Option<u64>,
    /// Prefixes that were given up so far, a page each.
    pub(super) evicted: u64,
}

/// Whose rows want pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) model: usize,
    pub(super) adapter: Option<AdapterId>,
}

impl Memory {
    /// Pages for a pinned sequence's rows from the first that is not computed up to `end`, behind
    /// the page that it is in. Copies that page if others wrote or write behind the sequence's
    /// last row. None, and nothing changed but that copy, when memory does not suffice.
    pub(super) fn make_room(
        &mut self,
        owner: Owner,
        sequence: &mut Sequence,
        end: usize,
        step: u64,
    ) -> Option<Vec<PageId>> {
        let filled = sequence.computed % PAGE_POSITIONS;
        if filled > 0 {
            self.own_tail(owner, sequence, filled, step)?;
        }
        let missing = end.div_ceil(PAGE_POSITIONS) - sequence.path.len();
        let mut fresh = Vec::with_capacity(missing);
        for _ in 0..missing {
            match self.take_page(owner.model) {
                Some(page) => fresh.push(page),
                None => {
                    let pool = &mut self.models[owner.model].pool;
                    fresh.into_iter().for_each(|page| pool.give(page));
                    return None;
                }
            }
        }
        Some(fresh)
    }

    /// Makes the place behind the sequence's last row one that it may write to.
    fn own_tail(
        &mut self,
        owner: Owner,
        sequence: &mut Sequence,
        filled: usize,
        step: u64,
    ) -> Option<()> {
        let tail = *sequence.path.last()?;
        if self.models[owner.model].tree.claim(tail, filled, step) {
            return Some(());
        }
        let Some(copy) = self.take_page(owner.model) else {
            // The last way: what others left behind the sequence's end is in nobody's use.
            let tree = &mut self.models[owner.model].tree;
            let cut = tree.cut(tail, filled)?;
            *sequence.path.last_mut()? = cut;
            return tree.claim(cut, filled, step).then_some(());
        };
        let model = &mut self.models[owner.model];
        model.decoder.copy_page(model.tree.page(tail), copy);
        model.copied_pages += 1;
        let begin = sequence.computed - filled;
        sequence.path.pop();
        let ids = &sequence.ids()[begin..sequence.computed];
        let node = model.tree.insert(owner.adapter, &sequence.path, ids, copy);
        model.tree.release(&[tail], 0);
        model.reclaim();
        let owned = model.tree.claim(node, filled, step);
        sequence.path.push(node);
        owned.then_some(())
    }

    /// A free page of a model, for which prefixes are given up if need be.
    fn take_page(&mut self, model: usize) -> Option<PageId> {
        loop {
            if let Some(page) = self.models[model].pool.take_warm() {
                return Some(page);
            }
            let cold = self.models[model].pool.cold() > 0;
            if cold && (self.has_memory_for(model) || self.cool_another(model)) {
                if self.has_memory_for(model) {
                    return self.models[model].pool.take_cold();
                }
                continue;
            }
            self.evict(model, cold)?;
        }
    }

    /// Whether one more page of a model may be backed with memory.
    fn has_memory_for(&self, model: usize) -> bool {
        let Some(limit) = self.page_memory else { return true };
        self.resident() + self.models[model].info.page_bytes as u64 <= limit
    }

    /// Bytes of all pages that have memory behind them.
    pub(super) fn resident(&self) -> u64 {
        let bytes = |model: &Model| (model.pool.resident() * model.info.page_bytes) as u64;
        self.models.iter().map(bytes).sum()
    }

    /// Takes the memory of a free page of another model; false if there is none.
    fn cool_another(&mut self, model: usize) -> bool {
        for (index, other) in self.models.iter_mut().enumerate() {
            if index != model
                && let Some(page) = other.pool.cool()
            {
                other.decoder.discard_page(page);
                return true;
            }
        }
        false
    }

    /// Gives up the least recently used prefix: of any model if their memory helps, else of this.
    fn evict(&mut self, model: usize, any: bool) -> Option<()> {
        let candidates = self.models.iter().enumerate();
        let (_, from) = candidates
            .filter(|&(index, _)| any || index == model)
            .filter_map(|(index, other)| Some((other.tree.oldest()?, index)))
            .min()?;
        let page = self.models[from].tree.evict()?;
        self.models[from].pool.give(page);
        self.evicted += 1;
        Some(())
    }

    /// Most pages that a model can come to without anyone giving up what he stands on: free ones
    /// and prefixes in nobody's use. Memory that other models could give up is counted in pages of
    /// this one.
    pub(super) fn within_reach(&self, model: usize) -> usize {
        let own = &self.models[model];
        let pages = own.pool.free() + own.tree.unpinned();
        let Some(limit) = self.page_memory else { return pages };
        let held = |model: &Model| {
            let pages = model.pool.total() - model.pool.free() - model.tree.unpinned();
            (pages * model.info.page_bytes) as u64
        };
        let held: u64 = self.models.iter().map(held).sum();
        pages.min((limit.saturating_sub(held) / own.info.page_bytes as u64) as usize)
    }

    /// Pages that a model can have when it has everything.
    pub(super) fn most_pages(&self, model: usize) -> usize {
        let own = &self.models[model];
        let total = own.pool.total();
        self.page_memory
            .map_or(total, |limit| total.min((limit / own.info.page_bytes as u64) as usize))
    }
}
