//! The words of a text: all of them, and those in capitals.

use std::sync::LazyLock;

use regex::Regex;

use super::python::is_upper;
use super::sentences::sentences;

static WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[\p{L}\p{N}_]+").expect("a fixed regex"));

/// How many runs of letters, digits and underscores there are.
pub fn count(text: &str) -> usize {
    WORD.find_iter(text).count()
}

/// What divides a sentence into tokens, in this order, after the Penn Treebank. Marks that are a token by
/// themselves become spaces: they are never in capitals.
const CUTS: [(&str, &str); 18] = [
    // In Python marks and joiners are no part of a word, and all numbers are: these signs say so here.
    (r"[\p{M}\p{Pc}\u200c\u200d--_]", "·"),
    (r"\p{No}", "_"),
    // Quotes that open.
    ("[«“‘„`]", " "),
    (r"'([\p{L}\p{N}_--mtsdnMTSDN])\b", "' $1"),
    // A full stop at the end, with what closes behind it.
    (r#"([^.])\.([\])}>"'»”’ ]*)\s*$"#, "$1 $2 "),
    // Not within numbers.
    (r"[:,](\D)", " $1"),
    (r"[:,]$", " "),
    (r"\.{2,}", " "),
    ("[;@#$%&]", " "),
    ("[?!]", " "),
    ("([^'])' ", "$1 ' "),
    (r"[*\]\[(){}<>]", " "),
    ("--", " "),
    // Quotes that close.
    ("[»”’\"]|''", " "),
    // What is written together.
    ("([^' ])('[sSmMdD]|') ", "$1 $2 "),
    ("([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", "$1 $2 "),
    (
        r"(?i)\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n))\b",
        " $1$3$5$7$9$11$13 $2$4$6$8$10$12$14 ",
    ),
    (r"(?i)\b(wan)(na)(\s)", " $1 $2 $3"),
];

static CUTTING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled = |(pattern, by)| (Regex::new(pattern).expect("a fixed regex"), by);
    CUTS.into_iter().map(compiled).collect()
});

/// How many tokens are in capitals: `DON'T` is two, `WELL-KNOWN` is one.
pub fn capital(text: &str) -> usize {
    sentences(text).into_iter().map(capital_in).sum()
}

fn capital_in(sentence: &str) -> usize {
    let mut spaced = sentence.to_owned();
    for (at, (pattern, by)) in CUTTING.iter().enumerate() {
        // Room at both ends for what looks at its neighbours.
        if at == QUOTES_CLOSE {
            spaced = format!(" {spaced} ");
        }
        spaced = pattern.replace_all(&spaced, *by).into_owned();
    }
    // 'TIS and 'TWAS.
    let spaced = TIS.replace_all(&spaced, " $1 $2 ");
    spaced.split(super::python::is_space).filter(|token| is_upper(token)).count()
}

/// Where the cuts begin that need room.
const QUOTES_CLOSE: usize = 13;

static TIS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i) ('t)(is|was)\b").expect("a fixed regex"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        assert_eq!(count("It's 3.5 well-known snake_case words."), 8);
        assert_eq!(count("  \n—!"), 0);
        // A mark parts a word, as it does in Python.
        assert_eq!(count("हिन्दी"), 3);
        assert_eq!(count("日本語"), 1);
    }

    #[test]
    fn capitals_are_counted_as_tokens() {
        for (text, capitals) in [
            ("I saw NASA and the U.S.A. today.", 3),
            ("DON'T", 2),
            ("CANNOT", 2),
            ("IT'S. Then", 2),
            ("WELL-KNOWN", 1),
            ("A/B", 1),
            ("(ONE) \"TWO\" [THREE]; FOUR: FIVE,SIX", 6),
            ("1,000 B2B", 1),
            ("**BOLD**", 1),
            ("ONE--TWO...THREE", 3),
            ("Mixed", 0),
            ("O'B", 2),
            ("I'LL GONNA WANNA GO", 7),
        ] {
            assert_eq!(capital(text), capitals, "{text}");
        }
    }
}
