//! Which questions two data sets share.
//!
//! Questions are told apart by a digest of what is left of them when case, punctuation and layout are
//! taken away, so that a data set that quotes another one in its own typography still overlaps with it.
//! Numbers stay: a problem with other numbers is another problem.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};

use super::Item;

/// What stands for a question: the first 16 bytes of the SHA-256 of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuestionDigest([u8; 16]);

impl QuestionDigest {
    /// The digest of a question. Letters are compared in lower case, and a run of anything but letters and digits parts
    /// words; a sign, a point or a comma between digits, and a minus before one, belong to the number.
    pub fn of(question: &str) -> Self {
        let digest = Sha256::digest(words(question));
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(first)
    }
}

impl fmt::Display for QuestionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Words and numbers of a text, one space between two.
fn words(text: &str) -> String {
    let text: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    let digit = |at: Option<usize>| {
        at.and_then(|at| text.get(at)).is_some_and(|c: &char| c.is_ascii_digit())
    };
    let mut words = String::new();
    let mut parted = false;
    for (at, &c) in text.iter().enumerate() {
        let (before, after) = (digit(at.checked_sub(1)), digit(Some(at + 1)));
        // `1,000` and `1000` are one number; `2,3` of a list is read as one as well, on both sides.
        if c == ',' && before && after {
            continue;
        }
        let of_number = (matches!(c, '.' | '/' | '^' | '*' | '+') && before && after)
            || (c == '-'
                && after
                && !text.get(at.wrapping_sub(1)).is_some_and(|c| c.is_alphanumeric()));
        if c.is_alphanumeric() || of_number {
            if parted && !words.is_empty() {
                words.push(' ');
            }
            parted = false;
            words.push(c);
        } else if c != '\'' && c != '’' {
            parted = true;
        }
    }
    words
}

/// Two items with one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    pub question: QuestionDigest,
    /// The ids of the items in the first set and in the second.
    pub ids: [String; 2],
}

/// The questions that two sets share, in the order of the first. A question that stands several times in a set is
/// counted once, by its first item.
pub fn overlap(one: &[Item], other: &[Item]) -> Vec<Shared> {
    let there = by_question(other);
    let mut shared: Vec<(usize, Shared)> = by_question(one)
        .into_iter()
        .filter_map(|(question, (place, id))| {
            let (_, other) = there.get(&question)?;
            Some((place, Shared { question, ids: [id.clone(), (*other).clone()] }))
        })
        .collect();
    shared.sort_by_key(|(place, _)| *place);
    shared.into_iter().map(|(_, shared)| shared).collect()
}

/// How many items of a set ask what an earlier one asks.
pub fn repeated(items: &[Item]) -> usize {
    items.len() - by_question(items).len()
}

fn by_question(items: &[Item]) -> BTreeMap<QuestionDigest, (usize, &String)> {
    let mut found = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        found.entry(QuestionDigest::of(&item.question)).or_insert((place, &item.id));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_case_and_punctuation_do_not_count_and_numbers_do() {
        let same = [
            ("Tom has 3 apples. How many?", "tom has 3 apples , how many ?"),
            ("It's 1,000 m", "its 1000 m"),
            ("What is $-3 + x$?", "what is  -3 + x"),
            ("Ärger  zählt", "ärger zählt"),
        ];
        for (one, other) in same {
            assert_eq!(QuestionDigest::of(one), QuestionDigest::of(other), "{one} | {other}");
        }
        let apart = [
            ("Tom has 3 apples", "Tom has 4 apples"),
            ("x = -3", "x = 3"),
            ("3.5 m", "35 m"),
            ("3.5 m", "3 5 m"),
            ("1/2", "12"),
            ("a b", "ab"),
            ("", "a"),
        ];
        for (one, other) in apart {
            assert_ne!(QuestionDigest::of(one), QuestionDigest::of(other), "{one} | {other}");
        }
        assert_eq!(words("It's  $1,234.50 - or -2^3!"), "its 1234.50 or -2^3");
    }

    #[test]
    fn a_digest_is_the_same_everywhere() {
        // The first half of the SHA-256 of "a", as any tool tells it.
        assert_eq!(QuestionDigest::of(" A?").to_string(), "ca978112ca1bbdcafac231b39a23dc4d");
    }
}
