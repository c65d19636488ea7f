//! A prefix as a number: a hash of all ids of a sequence up to a position, and of the adapter.
//!
//! 128 bits, so that two prefixes among a billion are confused with a probability below 1e-20: counts
//! that rest on it are exact for every purpose.

use crate::model::AdapterId;
use crate::text::TokenId;

/// The hash of a sequence's ids up to some position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Prefix(u128);

const SPREAD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
const ODD: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl Prefix {
    /// The empty prefix of a model with or without an adapter.
    pub(super) fn empty(adapter: Option<AdapterId>) -> Self {
        // Numbers that no id has.
        let adapter = adapter.map_or(0, |adapter| u128::from(adapter.0) + 1);
        Self(ODD).mixed(adapter + (1 << 64))
    }

    /// The prefix that goes on with `id`.
    pub(super) fn then(self, id: TokenId) -> Self {
        self.mixed(u128::from(id.0) + 1)
    }

    /// The prefix that goes on with all of `ids`.
    pub(super) fn after(self, ids: &[TokenId]) -> Self {
        ids.iter().fold(self, |prefix, &id| prefix.then(id))
    }

    fn mixed(self, number: u128) -> Self {
        let mut x = (self.0 ^ number.wrapping_mul(SPREAD)).wrapping_mul(ODD);
        x ^= x >> 71;
        x = x.wrapping_mul(SPREAD | 1);
        Self(x ^ (x >> 61))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_differ_by_ids_their_order_and_the_adapter() {
        let mut seen = std::collections::HashSet::new();
        for adapter in [None, Some(AdapterId(0)), Some(AdapterId(1))] {
            let empty = Prefix::empty(adapter);
            assert!(seen.insert(empty));
            for a in 0..60 {
                assert!(seen.insert(empty.then(TokenId(a))));
                for b in 0..60 {
                    let ids = [TokenId(a), TokenId(b)];
                    assert!(seen.insert(empty.after(&ids)));
                    assert_eq!(empty.after(&ids), empty.then(ids[0]).then(ids[1]));
                }
            }
        }
    }
}
