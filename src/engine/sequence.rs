//! A sequence: token ids, and the pages that hold what was computed of them.
//!
//! Always: `computed ≤ ids`, and the page table names exactly the pages of the computed positions.
//! Pages are counted in the model's pool, so a sequence ends by [`Sequence::release`], not by
//! being dropped.

use super::pages::PagePool;
use super::waste::PrefixId;
use crate::device::{PAGE_POSITIONS, PageId};
use crate::model::{Decoder, HiddenAt};
use crate::text::TokenId;

/// How a position came to be in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    /// Which append or draw of the engine made it; never used twice.
    pub(super) serial: u64,
    pub(super) generated: bool,
}

/// Token ids with the pages of those that are computed.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    ids: Vec<TokenId>,
    births: Vec<Birth>,
    pages: Vec<PageId>,
    computed: usize,
    /// Per computed position its prefix in the trie of forwarded prefixes, where that is kept.
    trail: Vec<PrefixId>,
}

/// Pages that a forward pass needs and the pool does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) needed: usize,
    pub(super) free: usize,
}

impl Sequence {
    pub(super) fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// How many positions, from the first, are in the pages.
    pub(super) fn computed(&self) -> usize {
        self.computed
    }

    pub(super) fn births(&self) -> &[Birth] {
        &self.births
    }

    pub(super) fn pages(&self) -> &[PageId] {
        &self.pages
    }

    pub(super) fn trail(&self) -> &[PrefixId] {
        &self.trail
    }

    /// Adds ids that are wanted and not computed.
    pub(super) fn append(&mut self, ids: &[TokenId], birth: Birth) {
        self.ids.extend_from_slice(ids);
        self.births.resize(self.ids.len(), birth);
    }

    /// A sequence with the same past, on the same pages.
    pub(super) fn fork(&self, pool: &mut PagePool) -> Sequence {
        self.pages.iter().for_each(|&page| pool.share(page));
        Sequence {
            ids: self.ids.clone(),
            births: self.births.clone(),
            pages: self.pages.clone(),
            computed: self.computed,
            trail: self.trail.clone(),
        }
    }

    /// Drops all positions from `len` on, and their pages.
    pub(super) fn truncate(&mut self, len: usize, pool: &mut PagePool) {
        self.ids.truncate(len);
        self.births.truncate(len);
        self.computed = self.computed.min(len);
        self.trail.truncate(self.computed);
        self.keep_pages(self.computed.div_ceil(PAGE_POSITIONS), pool);
    }

    /// Gives all pages back.
    pub(super) fn release(mut self, pool: &mut PagePool) {
        self.truncate(0, pool);
    }

    fn keep_pages(&mut self, count: usize, pool: &mut PagePool) {
        self.pages.drain(count..).for_each(|page| pool.release(page));
    }

    /// What another sequence can give this one: the length of their common beginning that the
    /// other has computed, if that is more than this one has.
    pub(super) fn could_adopt(&self, other: &Sequence) -> Option<usize> {
        let reach = other.computed.min(self.ids.len());
        if reach <= self.computed || other.ids[self.computed] != self.ids[self.computed] {
            return None;
        }
        let common =
            self.ids[..reach].iter().zip(&other.ids).take_while(|(own, its)| own == its).count();
        (common > self.computed).then_some(common)
    }

    /// Takes over the other's pages of the first `common` positions in place of its own.
    pub(super) fn adopt(&mut self, lent: &Lent, pool: &mut PagePool) {
        lent.pages.iter().for_each(|&page| pool.share(page));
        self.keep_pages(0, pool);
        self.pages.clone_from(&lent.pages);
        self.trail.clone_from(&lent.trail);
        self.computed = lent.common;
    }

    /// The pages of the first `common` computed positions, for another sequence to adopt.
    pub(super) fn lend(&self, common: usize) -> Lent {
        Lent {
            common,
            pages: self.pages[..common.div_ceil(PAGE_POSITIONS)].to_vec(),
            trail: self.trail[..common.min(self.trail.len())].to_vec(),
        }
    }

    /// Makes the pages of positions `computed..end` this sequence's own: copies the last page if
    /// it is partly filled and shared, and takes the pages that are missing. All or nothing.
    pub(super) fn make_room(
        &mut self,
        end: usize,
        pool: &mut PagePool,
        decoder: &mut dyn Decoder,
    ) -> Result<(), Shortage> {
        let partly_filled = !self.computed.is_multiple_of(PAGE_POSITIONS);
        let shared =
            self.pages.last().copied().filter(|&page| partly_filled && pool.is_shared(page));
        let missing = end.div_ceil(PAGE_POSITIONS) - self.pages.len();
        let needed = missing + usize::from(shared.is_some());
        let shortage = Shortage { needed, free: pool.free() };
        if needed > pool.free() {
            return Err(shortage);
        }
        if let Some(page) = shared {
            let own = pool.take().ok_or(shortage)?;
            decoder.copy_page(page, own);
            pool.release(page);
            self.pages.pop();
            self.pages.push(own);
        }
        for _ in 0..missing {
            self.pages.push(pool.take().ok_or(shortage)?);
        }
        Ok(())
    }

    /// Gives back the pages beyond the computed positions, after a forward pass that failed.
    pub(super) fn leave_room(&mut self, pool: &mut PagePool) {
        self.keep_pages(self.computed.div_ceil(PAGE_POSITIONS), pool);
    }

    /// Notes that positions up to `end` are in the pages.
    pub(super) fn note_computed(&mut self, end: usize) {
        self.computed = end;
    }

    /// Notes the prefix of the next position in the trie of forwarded prefixes.
    pub(super) fn note_prefix(&mut self, prefix: PrefixId) {
        self.trail.push(prefix);
    }

    /// Checks what must always hold of the lengths.
    pub(super) fn check(&self) -> Result<(), String> {
        let (ids, births, computed) = (self.ids.len(), self.births.len(), self.computed);
        let (pages, trail) = (self.pages.len(), self.trail.len());
        let pages_hold = pages == computed.div_ceil(PAGE_POSITIONS);
        if births == ids && computed <= ids && pages_hold && (trail == 0 || trail == computed) {
            return Ok(());
        }
        Err(format!(
            "{ids} ids, {births} births, {computed} computed, {pages} pages, {trail} trail"
        ))
    }

    /// Where the hidden row of a computed position is kept.
    pub(super) fn hidden_at(&self, position: usize) -> HiddenAt {
        HiddenAt { page: self.pages[position / PAGE_POSITIONS], offset: position % PAGE_POSITIONS }
    }
}

/// Pages that a sequence lends to another with the same beginning.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) common: usize,
    pages: Vec<PageId>,
    trail: Vec<PrefixId>,
}
