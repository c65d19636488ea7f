//! Stop strings over a stream of bytes.
//!
//! A reply is read byte by byte, so what stops it is a function of its text alone, whatever its
//! tokens: the stop string that is complete first ends it, and of several that end at the same
//! byte the longest. Each string is followed by its own automaton (Knuth, Morris and Pratt 1977),
//! whose state says how much of the string the text might just be beginning.

/// Follows the stop strings of one request through its reply.
#[derive(Debug)]
pub(super) struct StopMatcher {
    patterns: Vec<Pattern>,
    seen: usize,
}

#[derive(Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// For each length of a matched beginning: its longest proper beginning that is also its end.
    fallback: Vec<usize>,
    matched: usize,
}

/// A stop string that was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StopMatch {
    /// Which of the stop strings.
    pub(super) which: usize,
    /// Byte of the reply where it begins.
    pub(super) start: usize,
}

impl StopMatcher {
    /// A matcher before the first byte of a reply. No string may be empty.
    pub(super) fn new<'a>(strings: impl IntoIterator<Item = &'a str>) -> Self {
        Self { patterns: strings.into_iter().map(Pattern::new).collect(), seen: 0 }
    }

    /// Reads on; answers with the first stop string that is complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<StopMatch> {
        for &byte in bytes {
            self.seen += 1;
            let mut found: Option<StopMatch> = None;
            for (which, pattern) in self.patterns.iter_mut().enumerate() {
                if pattern.step(byte) {
                    let start = self.seen - pattern.bytes.len();
                    if found.is_none_or(|earlier| start < earlier.start) {
                        found = Some(StopMatch { which, start });
                    }
                }
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// How many bytes of the reply no stop string can still reach.
    pub(super) fn safe(&self) -> usize {
        self.seen - self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0)
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len() + 1];
        let mut length = 0;
        for end in 1..bytes.len() {
            while length > 0 && bytes[end] != bytes[length] {
                length = fallback[length];
            }
            if bytes[end] == bytes[length] {
                length += 1;
            }
            fallback[end + 1] = length;
        }
        Self { bytes, fallback, matched: 0 }
    }

    /// Reads one byte; true when the whole string has been read.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        if self.matched < self.bytes.len() {
            return false;
        }
        self.matched = self.fallback[self.matched];
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, without automata: the first end of any string, the longest at that end.
    fn by_definition(strings: &[String], text: &[u8]) -> Option<StopMatch> {
        (1..=text.len()).find_map(|end| {
            strings
                .iter()
                .enumerate()
                .filter(|(_, string)| text[..end].ends_with(string.as_bytes()))
                .map(|(which, string)| StopMatch { which, start: end - string.len() })
                .min_by_key(|found| (found.start, found.which))
        })
    }

    /// The longest end of `text` that is a proper beginning of a string.
    fn withheld(strings: &[String], text: &[u8]) -> usize {
        let beginnings = strings.iter().flat_map(|s| (1..s.len()).map(|n| &s.as_bytes()[..n]));
        beginnings.filter(|b| text.ends_with(b)).map(<[u8]>::len).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn as_defined_in_any_cut(
            strings in proptest::collection::vec("[ab€]{1,5}", 0..4),
            text in "[ab€]{0,40}",
            cuts in proptest::collection::vec(1usize..7, 1..60),
        ) {
            let text = text.as_bytes();
            let mut matcher = StopMatcher::new(strings.iter().map(String::as_str));
            let (mut at, mut found) = (0, None);
            for cut in cuts.iter().cycle() {
                if at == text.len() || found.is_some() {
                    break;
                }
                let end = (at + cut).min(text.len());
                found = matcher.feed(&text[at..end]);
                at = end;
                if found.is_none() {
                    prop_assert_eq!(matcher.safe(), at - withheld(&strings, &text[..at]));
                }
            }
            prop_assert_eq!(found, by_definition(&strings, text));
        }
    }

    #[test]
    fn the_first_to_be_complete_stops() {
        let mut matcher = StopMatcher::new(["bcd", "c"]);
        assert_eq!(matcher.feed(b"abcd"), Some(StopMatch { which: 1, start: 2 }));
        let mut matcher = StopMatcher::new(["c", "abc", "bc"]);
        assert_eq!(matcher.feed(b"xabc"), Some(StopMatch { which: 1, start: 1 }));
    }
}
