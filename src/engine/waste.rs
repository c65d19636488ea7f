//! Counts wasted work: rows that were forwarded although the same prefix had been.
//!
//! *Waste ratio* = rows forwarded / distinct prefixes among them that had not been forwarded there
//! before, generated tokens that are fed back for the first time left out of both: the rows of a
//! perfect prefix cache are in the denominator. It is 1.00 when no prefix was forwarded twice. The
//! set of prefixes grows with every distinct token, so it is kept only when asked for.

use std::collections::{HashSet, VecDeque};

use super::prefix::Prefix;

/// The prefixes that went through a forward pass of one model.
#[derive(Debug, Default)]
pub(super) struct ForwardedPrefixes {
    seen: HashSet<Prefix>,
    counted: Waste,
}

/// Appended rows that were forwarded, beside how many a perfect prefix cache would have forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Waste {
    pub appended_rows: u64,
    pub distinct_rows: u64,
}

impl Waste {
    /// Appended rows / distinct rows; 1 when nothing was computed twice, absent before the first
    /// appended row.
    pub fn ratio(&self) -> Option<f64> {
        (self.distinct_rows > 0).then(|| self.appended_rows as f64 / self.distinct_rows as f64)
    }
}

impl ForwardedPrefixes {
    /// Counts a row; `fed_back` says that it is a generated token's first.
    pub(super) fn forwarded(&mut self, prefix: Prefix, fed_back: bool) {
        let new = self.seen.insert(prefix);
        if !fed_back {
            self.counted.appended_rows += 1;
            self.counted.distinct_rows += u64::from(new);
        }
    }

    pub(super) fn counted(&self) -> Waste {
        self.counted
    }
}

/// Prefixes whose keys and values were given up: what is computed of them again is counted by
/// cause. Only the latest are remembered.
#[derive(Debug)]
pub(super) struct GivenUp {
    prefixes: HashSet<Prefix>,
    order: VecDeque<Prefix>,
    limit: usize,
}

impl GivenUp {
    /// Remembers at most `limit` prefixes.
    pub(super) fn new(limit: usize) -> Self {
        Self { prefixes: HashSet::new(), order: VecDeque::new(), limit }
    }

    pub(super) fn add(&mut self, prefix: Prefix) {
        if !self.prefixes.insert(prefix) {
            return;
        }
        self.order.push_back(prefix);
        if self.order.len() > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.prefixes.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, prefix: Prefix) -> bool {
        self.prefixes.contains(&prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AdapterId;
    use crate::text::TokenId;

    #[test]
    fn a_prefix_counts_once() {
        let mut forwarded = ForwardedPrefixes::default();
        let root = Prefix::empty(None);
        let a = root.then(TokenId(1));
        forwarded.forwarded(a, false);
        forwarded.forwarded(a.then(TokenId(1)), false);
        assert_eq!(forwarded.counted().ratio(), Some(1.0));
        forwarded.forwarded(a, false);
        assert_eq!(forwarded.counted(), Waste { appended_rows: 3, distinct_rows: 2 });
        // Another adapter's keys and values are its own.
        forwarded.forwarded(Prefix::empty(Some(AdapterId(0))).then(TokenId(1)), false);
        assert_eq!(forwarded.counted(), Waste { appended_rows: 4, distinct_rows: 3 });
    }

    #[test]
    fn rows_fed_back_are_in_neither_count() {
        let mut forwarded = ForwardedPrefixes::default();
        let prefix = Prefix::empty(None).then(TokenId(7));
        forwarded.forwarded(prefix, true);
        assert_eq!(forwarded.counted().ratio(), None);
        // Appended where it had been generated: a row that a cache would have spared.
        forwarded.forwarded(prefix, false);
        assert_eq!(forwarded.counted(), Waste { appended_rows: 1, distinct_rows: 0 });
    }

    #[test]
    fn only_the_latest_losses_are_remembered() {
        let mut given_up = GivenUp::new(2);
        let [a, b, c] = [1, 2, 3].map(|id| Prefix::empty(None).then(TokenId(id)));
        for prefix in [a, b, a, c] {
            given_up.add(prefix);
        }
        assert!(!given_up.contains(a) && given_up.contains(b) && given_up.contains(c));
    }
}
