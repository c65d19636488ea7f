//! Streams of random numbers: which draw a reply takes. The engine keys each draw by (seed, stream,
//! position, token), so a stream only has to differ where a new draw is wanted.

use sha2::{Digest, Sha256};

/// What a stream is named by. Methods that give the same name share their samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamName<'a> {
    /// The problem's id.
    pub item: &'a str,
    /// What the dialogue does, e.g. `judge`.
    pub role: &'a str,
    pub sample: u32,
    /// Raised by every rewind, so that asking again is a new draw.
    pub attempt: u32,
}

impl StreamName<'_> {
    /// The stream: the first eight bytes, little-endian, of SHA-256 over a canonical encoding: the
    /// tag `unsay.stream.1`, then item and role each behind its length in bytes as u64, then sample
    /// and attempt as u32, all little-endian. Declared, so that runs repeat on any machine and build.
    pub fn stream(&self) -> u64 {
        let mut hash = Sha256::new();
        hash.update(b"unsay.stream.1");
        for text in [self.item, self.role] {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.update(self.sample.to_le_bytes());
        hash.update(self.attempt.to_le_bytes());
        let digest = hash.finalize();
        digest.iter().take(8).rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(item: &str, role: &str, sample: u32, attempt: u32) -> u64 {
        StreamName { item, role, sample, attempt }.stream()
    }

    /// Known answers, computed with Python's hashlib and struct from the encoding as declared.
    #[test]
    fn streams_are_the_declared_hash() {
        assert_eq!(stream("gsm8k/1", "judge", 0, 0), KNOWN[0]);
        assert_eq!(stream("gsm8k/1", "judge", 0, 1), KNOWN[1]);
        assert_eq!(stream("", "", 0, 0), KNOWN[2]);
        assert_eq!(stream("é", "program", 4_000_000_000, 7), KNOWN[3]);
    }

    const KNOWN: [u64; 4] =
        [0x7c5ea3b42473a459, 0x7d4b9b7a006ceccc, 0x9738027470cd2683, 0x184583e12b3c787a];

    #[test]
    fn neither_lengths_nor_fields_run_into_each_other() {
        let all = [
            stream("ab", "c", 0, 0),
            stream("a", "bc", 0, 0),
            stream("a", "b", 1, 0),
            stream("a", "b", 0, 1),
            stream("b", "a", 0, 1),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
