//! The added tokens of a vocabulary, and where they stand in a text.

use super::TokenId;

/// A token that is matched as a whole in text before the rest is tokenized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddedToken {
    pub(super) text: String,
    pub(super) id: TokenId,
    /// A control token, such as the end of a turn. The others (tags that a model was trained with)
    /// are part of content too.
    pub(super) special: bool,
    /// White space before or after it belongs to it.
    pub(super) lstrip: bool,
    pub(super) rstrip: bool,
    /// It counts only where no word character touches it.
    pub(super) single_word: bool,
}

/// All added tokens, by their first byte, longest first.
#[derive(Clone, Debug)]
pub(super) struct AddedTokens {
    by_first: Vec<Vec<AddedToken>>,
}

/// A piece of a text: what lies between tokens that are matched as a whole, or one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span<'a> {
    Text(&'a str),
    Whole(TokenId),
}

impl AddedTokens {
    pub(super) fn new(tokens: Vec<AddedToken>) -> Self {
        let mut by_first = vec![Vec::new(); 256];
        for token in tokens {
            if let Some(&first) = token.text.as_bytes().first() {
                by_first[usize::from(first)].push(token);
            }
        }
        for bucket in &mut by_first {
            bucket.sort_by(|a: &AddedToken, b| {
                b.text.len().cmp(&a.text.len()).then(a.text.cmp(&b.text))
            });
        }
        Self { by_first }
    }

    /// All tokens, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &AddedToken> {
        self.by_first.iter().flatten()
    }

    /// The longest token that begins at byte `at` of the text.
    pub(super) fn at(&self, text: &str, at: usize) -> Option<&AddedToken> {
        self.longest(text, at, |_| true)
    }

    fn longest(
        &self,
        text: &str,
        at: usize,
        counts: impl Fn(&AddedToken) -> bool,
    ) -> Option<&AddedToken> {
        let rest = text.as_bytes().get(at..)?;
        let bucket = &self.by_first[usize::from(*rest.first()?)];
        let here = |token: &&AddedToken| {
            counts(token) && rest.starts_with(token.text.as_bytes()) && fits(token, text, at)
        };
        bucket.iter().find(here)
    }

    /// Cuts content at the added tokens that are part of content: those that are not special.
    pub(super) fn split_content<'a>(&self, text: &'a str) -> Vec<Span<'a>> {
        self.split_at(text, |text, at| {
            self.longest(text, at, |token| !token.special).map(|token| (token, true))
        })
    }

    /// Cuts a text at its special tokens. Added tokens that are not special stay in the text, and
    /// what stands inside one of them is no special token.
    pub(super) fn split<'a>(&self, text: &'a str) -> Vec<Span<'a>> {
        self.split_at(text, |text, at| self.at(text, at).map(|token| (token, token.special)))
    }

    /// Cuts a text at the tokens that `find` finds at a byte and says to cut at. The others are
    /// stepped over.
    fn split_at<'a, 't>(
        &'t self,
        text: &'a str,
        find: impl Fn(&str, usize) -> Option<(&'t AddedToken, bool)>,
    ) -> Vec<Span<'a>> {
        let mut spans = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            let Some((token, cuts)) = find(text, at) else {
                at += 1;
                continue;
            };
            let end = at + token.text.len();
            if !cuts {
                at = end;
                continue;
            }
            let before = &text[start..at];
            let before = if token.lstrip { before.trim_end() } else { before };
            if !before.is_empty() {
                spans.push(Span::Text(before));
            }
            spans.push(Span::Whole(token.id));
            let after = &text[end..];
            let skipped = if token.rstrip { after.len() - after.trim_start().len() } else { 0 };
            start = end + skipped;
            at = start;
        }
        if start < text.len() {
            spans.push(Span::Text(&text[start..]));
        }
        spans
    }

    /// Where marks must go into `content` so that no special token can be read out of it, nor out
    /// of it and what a template writes around it: by byte offset, rising. Marks belong to no
    /// token and are taken out again after the text was cut.
    pub(super) fn guards(&self, content: &str) -> Vec<(usize, Guard)> {
        let mut guards = Vec::new();
        for at in 0..content.len() {
            let first = usize::from(content.as_bytes()[at]);
            for token in self.by_first[first].iter().filter(|token| token.special) {
                if content.as_bytes()[at..].starts_with(token.text.as_bytes()) {
                    match first_char_len(&token.text) {
                        whole if whole == token.text.len() => guards.push((at, Guard::Quote)),
                        first => guards.push((at + first, Guard::Split)),
                    }
                }
            }
        }
        // A template may strip white space from the content before it writes on.
        let trimmed = content.trim();
        let trimmed_start = content.len() - content.trim_start().len();
        for (part, offset) in [(content, 0), (trimmed, trimmed_start)] {
            for token in self.iter().filter(|token| token.special) {
                let edges = edge_guards(part, &token.text).into_iter();
                guards.extend(edges.map(|at| (at + offset, Guard::Split)));
            }
        }
        guards.sort_unstable();
        guards.dedup();
        guards
    }
}

/// The two kinds of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Guard {
    /// Stands inside the text of a special token, which is then none.
    Split,
    /// Stands before a special token of a single character, which has no inside.
    Quote,
}

fn first_char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// Where marks split a special token of which only a part stands at an edge of the content, or which
/// has the content all inside it.
fn edge_guards(content: &str, token: &str) -> Vec<usize> {
    let mut guards = Vec::new();
    for (cut, _) in token.char_indices().skip(1) {
        let (head, tail) = token.split_at(cut);
        if content.ends_with(head) {
            guards.push(content.len() - head.len() + first_char_len(token));
        }
        if content.starts_with(tail) {
            // Before the last character of the token.
            let last = tail.chars().next_back().map_or(0, char::len_utf8);
            guards.push(tail.len() - last);
        }
    }
    if !content.is_empty() && content.len() < token.len() && token.contains(content) {
        guards.push(0);
    }
    guards
}

fn fits(token: &AddedToken, text: &str, at: usize) -> bool {
    if !token.single_word {
        return true;
    }
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let before = text[..at].chars().next_back().is_some_and(word);
    let after = text[at + token.text.len()..].chars().next().is_some_and(word);
    !before && !after
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn token(text: &str, id: u32, special: bool) -> AddedToken {
        let (lstrip, rstrip, single_word) = (false, false, false);
        AddedToken { text: text.to_owned(), id: TokenId(id), special, lstrip, rstrip, single_word }
    }

    fn tokens() -> AddedTokens {
        AddedTokens::new(vec![
            token("<|a|>", 1, true),
            token("<|a|>b", 2, true),
            token("<t>", 3, false),
            token("§", 4, true),
            token("|>|>", 5, true),
        ])
    }

    #[test]
    fn the_longest_token_counts() {
        use Span::*;
        let tokens = tokens();
        assert_eq!(tokens.split(""), []);
        assert_eq!(tokens.split("x<|a|>y"), [Text("x"), Whole(TokenId(1)), Text("y")]);
        assert_eq!(tokens.split("<|a|>b"), [Whole(TokenId(2))]);
        assert_eq!(tokens.split("<t><|a|>"), [Text("<t>"), Whole(TokenId(1))]);
        assert_eq!(tokens.split("ä§ö"), [Text("ä"), Whole(TokenId(4)), Text("ö")]);
    }

    #[test]
    fn white_space_and_words_count_where_a_token_says_so() {
        use Span::*;
        let mut strip = token("<m>", 7, true);
        (strip.lstrip, strip.rstrip) = (true, true);
        let tokens = AddedTokens::new(vec![strip]);
        assert_eq!(tokens.split("a \n<m>  b"), [Text("a"), Whole(TokenId(7)), Text("b")]);
        assert_eq!(tokens.split(" <m> <m>"), [Whole(TokenId(7)), Whole(TokenId(7))]);
        let mut word = token("yes", 8, true);
        word.single_word = true;
        let tokens = AddedTokens::new(vec![word]);
        assert_eq!(tokens.split("yesterday"), [Text("yesterday")]);
        assert_eq!(tokens.split("a yes"), [Text("a "), Whole(TokenId(8))]);
    }

    /// The content with marks in it.
    fn guarded(tokens: &AddedTokens, content: &str) -> String {
        let mut out = content.to_owned();
        for (at, guard) in tokens.guards(content).into_iter().rev() {
            out.insert(at, if guard == Guard::Split { '\u{fdd0}' } else { '\u{fdd1}' });
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever surrounds a content, no special token of more than one character is found that
        /// takes a part of it.
        #[test]
        fn no_special_token_reaches_into_content(
            before in "[<|a>b ]{0,5}", content in "[<|a>b ]{0,8}", after in "[<|a>b ]{0,5}", trim: bool,
        ) {
            let tokens = tokens();
            let marked = guarded(&tokens, &content);
            let marked = if trim { marked.trim() } else { &marked };
            let text = format!("{before}{marked}{after}");
            let inner = before.len()..before.len() + marked.len();
            for at in 0..text.len() {
                for token in tokens.iter().filter(|token| token.special) {
                    if text.as_bytes()[at..].starts_with(token.text.as_bytes()) {
                        // Of an empty content there is no part to take.
                        let touches = !inner.is_empty()
                            && at < inner.end
                            && at + token.text.len() > inner.start;
                        prop_assert!(!touches, "{:?} in {text:?}", token.text);
                    }
                }
            }
        }
    }
}
