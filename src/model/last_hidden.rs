//! Hidden rows of the last batch, for models whose pages keep none.

use super::{Batch, HiddenAt, ModelError, Row};
use crate::device::{KvType, Ops, PAGE_POSITIONS, PageId, PageLayout, RowsSpec};
use std::collections::HashMap;

/// The hidden rows of the last batch, row after row in pages of their own, and which place of the
/// model's pages each belongs to.
pub(super) struct LastHidden<O: Ops> {
    layout: PageLayout,
    arena: O::Arena,
    /// Rows that the arena has room for.
    room: usize,
    /// By page and offset: the row of the batch.
    rows: HashMap<(PageId, usize), usize>,
}

impl<O: Ops> LastHidden<O> {
    /// Room for batches of `room` rows; longer ones make more.
    pub(super) fn new(ops: &O, hidden: usize, room: usize) -> Result<Self, ModelError> {
        let layout = PageLayout { layers: 0, kv_heads: 1, head_dim: 2, hidden, kv: KvType::F32 };
        let pages = room.div_ceil(PAGE_POSITIONS);
        let arena = ops.arena(layout, pages)?;
        Ok(Self { layout, arena, room: pages * PAGE_POSITIONS, rows: HashMap::new() })
    }

    /// Forgets the last batch and takes in the places of the next one.
    pub(super) fn begin(&mut self, ops: &O, batch: &Batch<'_>) -> Result<(), ModelError> {
        self.rows.clear();
        if batch.rows.len() > self.room {
            *self = Self::new(ops, self.layout.hidden, batch.rows.len())?;
        }
        let place = |row: &Row| {
            let page = batch.tables[row.slot][row.position / PAGE_POSITIONS];
            (page, row.position % PAGE_POSITIONS)
        };
        self.rows.extend(batch.rows.iter().enumerate().map(|(index, row)| (place(row), index)));
        Ok(())
    }

    /// No row is kept any more: the batch failed.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// Keeps the rows of `hidden` as rows `from..from + tokens.len()` of the batch; answers with those
    /// that are not finite.
    pub(super) fn keep(
        &mut self,
        ops: &mut O,
        from: usize,
        tokens: &[u32],
        hidden: &O::Buffer,
    ) -> Result<Vec<usize>, ModelError> {
        let positions: Vec<usize> = (from..from + tokens.len()).collect();
        let pages = (from + tokens.len()).div_ceil(PAGE_POSITIONS) as u32;
        let table: Vec<PageId> = (0..pages).map(PageId).collect();
        let slots = vec![0; tokens.len()];
        let (positions, tables) = (&positions[..], &[&table[..]][..]);
        let spec = RowsSpec { tokens, slots: &slots, positions, tables, adapters: &[] };
        let rows = ops.rows(spec)?;
        let arena = &mut self.arena;
        Ok(ops.within(|ops| ops.keep_hidden(&rows, hidden, arena)))
    }

    /// Where the rows of these places of the model's pages lie in the arena of the batch.
    pub(super) fn find(&self, wanted: &[HiddenAt]) -> Result<Vec<HiddenAt>, ModelError> {
        let find = |(index, at): (usize, &HiddenAt)| match self.rows.get(&(at.page, at.offset)) {
            Some(row) => Ok(HiddenAt {
                page: PageId((row / PAGE_POSITIONS) as u32),
                offset: row % PAGE_POSITIONS,
            }),
            None => Err(ModelError::HiddenNotKept { index, page: at.page.0, offset: at.offset }),
        };
        wanted.iter().enumerate().map(find).collect()
    }

    pub(super) fn arena(&self) -> &O::Arena {
        &self.arena
    }

    /// The model's page `to` now holds what `from` holds.
    pub(super) fn page_copied(&mut self, from: PageId, to: PageId) {
        for offset in 0..PAGE_POSITIONS {
            match self.rows.get(&(from, offset)).copied() {
                Some(row) => self.rows.insert((to, offset), row),
                None => self.rows.remove(&(to, offset)),
            };
        }
    }

    /// What the model's page held is lost.
    pub(super) fn page_discarded(&mut self, page: PageId) {
        self.rows.retain(|(of, _), _| *of != page);
    }
}
