//! A sequence: token ids, how each came to be, and the way through the prefix tree to what is
//! computed of them.

use super::tree::NodeId;
use crate::device::PAGE_POSITIONS;
use crate::text::TokenId;

/// How a position came to be in a sequence: which append or draw of the engine made it, and
/// whether it was a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth(u64);

impl Birth {
    /// By the append with this number, which is never used twice.
    pub(super) fn appended(serial: u64) -> Self {
        Self(serial << 1)
    }

    /// By the draw with this number.
    pub(super) fn drawn(serial: u64) -> Self {
        Self(serial << 1 | 1)
    }

    pub(super) fn is_draw(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Token ids with the nodes that hold what is computed of the first of them.
///
/// While a call works on it the nodes are pinned; otherwise they are a hint that may be outdated.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    ids: Vec<TokenId>,
    births: Vec<Birth>,
    /// Per position whether it was computed at some time.
    met: Vec<bool>,
    pub(super) path: Vec<NodeId>,
    pub(super) computed: usize,
}

impl Sequence {
    pub(super) fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn births(&self) -> &[Birth] {
        &self.births
    }

    /// Adds ids that are wanted and not computed.
    pub(super) fn append(&mut self, ids: &[TokenId], birth: Birth) {
        self.ids.extend_from_slice(ids);
        self.births.resize(self.ids.len(), birth);
        self.met.resize(self.ids.len(), false);
    }

    /// Drops all positions from `len` on. Nothing may be pinned.
    pub(super) fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.births.truncate(len);
        self.met.truncate(len);
        self.computed = self.computed.min(len);
        self.path.truncate(self.computed.div_ceil(PAGE_POSITIONS));
    }

    /// Notes that all positions before `end` are computed.
    pub(super) fn reach(&mut self, end: usize) {
        self.met[..end].fill(true);
        self.computed = end;
    }

    /// Whether a position was computed at some time.
    pub(super) fn was_met(&self, position: usize) -> bool {
        self.met[position]
    }

    /// Checks what must always hold of the lengths.
    pub(super) fn check(&self) -> Result<(), String> {
        let (ids, births, met) = (self.ids.len(), self.births.len(), self.met.len());
        let (computed, nodes) = (self.computed, self.path.len());
        let lengths = births == ids && met == ids && computed <= ids;
        if lengths && nodes == computed.div_ceil(PAGE_POSITIONS) {
            return Ok(());
        }
        Err(format!("{ids} ids, {births} births, {met} met, {computed} computed, {nodes} nodes"))
    }
}
