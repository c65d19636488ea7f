//! Counts wasted work: appended rows that were forwarded although the same prefix had been.
//!
//! A trie holds each prefix that went through a forward pass, per adapter. *Waste ratio* =
//! appended rows forwarded / distinct nodes among them that had not been generated (and fed back)
//! there before: the rows of a perfect prefix cache. It is 1.00 when no prefix was forwarded
//! twice. The trie grows with every distinct token, so it is kept only when asked for.

use std::collections::HashMap;

use crate::model::AdapterId;
use crate::text::TokenId;

/// A prefix that went through a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PrefixId(u32);

/// What a prefix hangs from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parent {
    /// The empty prefix of a model with or without an adapter.
    Root(Option<AdapterId>),
    Prefix(PrefixId),
}

/// The trie of forwarded prefixes of one model.
#[derive(Debug, Default)]
pub(super) struct ForwardedTrie {
    nodes: HashMap<(Parent, TokenId), PrefixId>,
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

impl ForwardedTrie {
    /// Counts the row of `token` after the prefix `parent`.
    pub(super) fn forwarded(
        &mut self,
        parent: Parent,
        token: TokenId,
        generated: bool,
    ) -> PrefixId {
        let next = PrefixId(self.nodes.len() as u32);
        let node = *self.nodes.entry((parent, token)).or_insert(next);
        if !generated {
            self.counted.appended_rows += 1;
            self.counted.distinct_rows += u64::from(node == next);
        }
        node
    }

    pub(super) fn counted(&self) -> Waste {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_counts_once() {
        let mut trie = ForwardedTrie::default();
        let root = Parent::Root(None);
        let a = trie.forwarded(root, TokenId(1), false);
        let b = trie.forwarded(Parent::Prefix(a), TokenId(1), false);
        assert_ne!(a, b);
        assert_eq!(trie.counted().ratio(), Some(1.0));
        assert_eq!(trie.forwarded(root, TokenId(1), false), a);
        assert_eq!(trie.counted(), Waste { appended_rows: 3, distinct_rows: 2 });
        // Another adapter's keys and values are its own.
        assert_ne!(trie.forwarded(Parent::Root(Some(AdapterId(0))), TokenId(1), false), a);
        assert_eq!(trie.counted(), Waste { appended_rows: 4, distinct_rows: 3 });
    }

    #[test]
    fn generated_rows_are_in_neither_count() {
        let mut trie = ForwardedTrie::default();
        let root = Parent::Root(None);
        trie.forwarded(root, TokenId(7), true);
        assert_eq!(trie.counted().ratio(), None);
        // Appended where it had been generated: a row that a cache would have spared.
        trie.forwarded(root, TokenId(7), false);
        assert_eq!(trie.counted(), Waste { appended_rows: 1, distinct_rows: 0 });
    }
}
