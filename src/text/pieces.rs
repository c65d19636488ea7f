//! Tokenizers of SentencePiece's BPE kind: text becomes characters, spaces written as `▁`, and
//! neighbours are joined into longer pieces, the best pair first. Which pair is best is said by the
//! pieces' scores (GGUF, and SentencePiece itself) or by the rank of the pair (tokenizer.json).
//! A character that is no piece becomes its bytes.

use std::collections::{BinaryHeap, HashMap, HashSet};

use super::TokenId;

/// What a space is written as in pieces.
const SPACE: char = '▁';

/// Whether a space is put before text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) when: PrefixWhen,
    /// Not where the text begins with a space anyhow.
    pub(super) unless_there: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrefixWhen {
    Never,
    /// Before text that nothing comes before.
    First,
    /// There, and before text that follows a token matched as a whole.
    Each,
}

/// Where a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing comes before it.
    Beginning,
    /// A special token, or another that is matched as a whole.
    BehindSpecial,
    /// Other text, or generated tokens.
    Behind,
}

/// Which neighbours are joined, and in what order.
#[derive(Clone, Debug)]
pub(super) enum Joining {
    /// Any two whose joined text is a piece; the piece with the highest score first. By id.
    Scores(Vec<f32>),
    /// The listed pairs, the lowest rank first.
    Ranks(Ranks),
}

/// Pairs that can be joined: (left, right) to (rank, joined).
pub(super) type Ranks = HashMap<(TokenId, TokenId), (u32, TokenId)>;

/// What is known of a vocabulary of pieces.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// The pieces that text can become; control tokens and bytes are not among them.
    pub(super) ids: HashMap<String, TokenId>,
    pub(super) joining: Joining,
    /// Pieces that only help to join: one that is left in the end is taken apart again.
    pub(super) unused: HashSet<TokenId>,
    /// The tokens that stand for single bytes.
    pub(super) bytes: Vec<Option<TokenId>>,
    pub(super) unknown: Option<TokenId>,
    pub(super) prefix: Prefix,
    /// Pieces do not reach over the beginning of a word.
    pub(super) split_words: bool,
}

/// A run of characters of the text that is one piece by now.
#[derive(Clone, Copy)]
struct Run {
    start: usize,
    /// `start` again once it was joined to the run before it.
    end: usize,
    before: Option<usize>,
    after: Option<usize>,
    id: Option<TokenId>,
}

/// What joining ends in.
struct Joined<'t> {
    /// In order.
    runs: Vec<Run>,
    /// Pieces that are not used, by their text: after how many bytes of it they were joined.
    cuts: HashMap<&'t str, usize>,
}

/// Two neighbours that can be joined. The greatest is the next: the best pair, then the leftmost.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    goodness: u32,
    left: std::cmp::Reverse<usize>,
    right: usize,
    /// Bytes of both; another length now means that one of them has changed since.
    len: usize,
    id: TokenId,
}

impl Pieces {
    /// Appends the ids of a text that no whole-matched token stands in. Fails with the character that is
    /// no piece where the vocabulary has neither bytes nor an unknown token for it.
    pub(super) fn encode(
        &self,
        text: &str,
        place: Place,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), char> {
        let text = self.written(text, place);
        if !self.split_words {
            return self.encode_run(&text, ids);
        }
        let mut start = 0;
        for (at, c) in text.char_indices().skip(1) {
            if c == SPACE {
                self.encode_run(&text[start..at], ids)?;
                start = at;
            }
        }
        self.encode_run(&text[start..], ids)
    }

    /// The text as pieces write it, with the space before it.
    fn written(&self, text: &str, place: Place) -> String {
        let there = self.prefix.unless_there && text.starts_with([' ', SPACE]);
        let wanted = match self.prefix.when {
            PrefixWhen::Never => false,
            PrefixWhen::First => place == Place::Beginning,
            PrefixWhen::Each => place != Place::Behind,
        };
        let mut written = String::with_capacity(text.len() + SPACE.len_utf8());
        if wanted && !there && !text.is_empty() {
            written.push(SPACE);
        }
        written.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        written
    }

    fn encode_run(&self, text: &str, ids: &mut Vec<TokenId>) -> Result<(), char> {
        let Joined { runs, cuts } = self.join(text);
        let mut unknown_before = false;
        let mut waiting = Vec::new();
        for run in runs {
            waiting.push(&text[run.start..run.end]);
            while let Some(piece) = waiting.pop() {
                match (self.ids.get(piece), cuts.get(piece)) {
                    // A piece that is not used becomes the two that it was joined of.
                    (Some(id), Some(&cut)) if self.unused.contains(id) => {
                        waiting.extend([&piece[cut..], &piece[..cut]]);
                    }
                    (Some(&id), _) => {
                        ids.push(id);
                        unknown_before = false;
                    }
                    (None, _) => unknown_before = self.spell(piece, unknown_before, ids)?,
                }
            }
        }
        Ok(())
    }

    /// Joins neighbours as long as any can be joined.
    fn join<'t>(&self, text: &'t str) -> Joined<'t> {
        let mut cuts = HashMap::new();
        let mut runs: Vec<Run> = Vec::new();
        for (index, (start, c)) in text.char_indices().enumerate() {
            let end = start + c.len_utf8();
            let id = self.ids.get(&text[start..end]).copied();
            runs.push(Run { start, end, before: index.checked_sub(1), after: Some(index + 1), id });
        }
        if let Some(last) = runs.last_mut() {
            last.after = None;
        }
        let mut pairs = BinaryHeap::new();
        for left in 1..runs.len() {
            pairs.extend(self.pair(text, &runs, left - 1, left));
        }
        while let Some(Pair { left, right, len, id, .. }) = pairs.pop() {
            let left = left.0;
            let (one, other) = (runs[left], runs[right]);
            let stale = one.start == one.end || other.start == other.end;
            if stale || one.after != Some(right) || other.end - one.start != len {
                continue;
            }
            if self.unused.contains(&id) {
                cuts.insert(&text[one.start..other.end], one.end - one.start);
            }
            runs[left] = Run { end: other.end, after: other.after, id: Some(id), ..one };
            runs[right].end = other.start;
            if let Some(after) = other.after {
                runs[after].before = Some(left);
                pairs.extend(self.pair(text, &runs, left, after));
            }
            if let Some(before) = one.before {
                pairs.extend(self.pair(text, &runs, before, left));
            }
        }
        runs.retain(|run| run.end > run.start);
        Joined { runs, cuts }
    }

    /// Two neighbours as a pair, if they can be joined.
    fn pair(&self, text: &str, runs: &[Run], left: usize, right: usize) -> Option<Pair> {
        let (one, other) = (runs[left], runs[right]);
        let (goodness, id) = match &self.joining {
            Joining::Scores(scores) => {
                let id = *self.ids.get(&text[one.start..other.end])?;
                (rising(*scores.get(id.index())?), id)
            }
            Joining::Ranks(ranks) => {
                let &(rank, id) = ranks.get(&(one.id?, other.id?))?;
                (u32::MAX - rank, id)
            }
        };
        let len = other.end - one.start;
        Some(Pair { goodness, left: std::cmp::Reverse(left), right, len, id })
    }

    /// The bytes of a character, or the unknown token once for any number of them in a row. Answers
    /// with whether it is unknown.
    fn spell(
        &self,
        piece: &str,
        unknown_before: bool,
        ids: &mut Vec<TokenId>,
    ) -> Result<bool, char> {
        let byte = |b: u8| self.bytes.get(usize::from(b)).copied().flatten();
        if let Some(bytes) = piece.bytes().map(byte).collect::<Option<Vec<TokenId>>>() {
            ids.extend(bytes);
            return Ok(false);
        }
        let unknown = self.unknown.ok_or_else(|| piece.chars().next().unwrap_or(SPACE))?;
        if !unknown_before {
            ids.push(unknown);
        }
        Ok(true)
    }
}

/// A number that rises with the score.
fn rising(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// The text that a piece stands for.
pub(super) fn piece_text(piece: &str) -> String {
    piece.replace(SPACE, " ")
}

/// The piece that a text is written as.
pub(super) fn written_piece(text: &str) -> String {
    text.replace(' ', "▁")
}

/// The byte of a piece such as `<0x0A>`.
pub(super) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}
