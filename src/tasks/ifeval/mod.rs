//! IFEval (Zhou et al. 2023): instructions whose following can be checked, of 25 types.
//!
//! `check` gives the official evaluator's verdicts: *strict*, on the reply as it is, and *loose*, on the
//! best of eight readings of it (without its first line, its last, both, each also without asterisks). An
//! empty reply follows nothing. Where the official evaluator draws at random (a language that its detector
//! is not sure of, a letter that is none) this one does not.

mod language;
mod read;
mod sentences;
mod words;

use regex::{Regex, RegexBuilder};

use super::json::Json;

pub(super) use read::instructions;

/// One instruction of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Its official name, e.g. `punctuation:no_comma`.
    pub id: String,
    pub rule: Rule,
}

/// What an instruction asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Words in capital letters.
    Capitals(Amount),
    /// English, all of it in capital or in small letters.
    English {
        upper: bool,
    },
    RepeatPrompt(String),
    TwoResponses,
    /// At least so many `[places]`.
    Placeholders(usize),
    Postscript(String),
    /// One of three given sentences.
    Constrained,
    Json,
    /// Parts that begin with the word and a number.
    Sections {
        splitter: String,
        count: usize,
    },
    /// Exactly so many.
    Bullets(usize),
    /// At least so many `*parts*`.
    Highlights(usize),
    /// `<<a title>>`.
    Title,
    /// Regular expressions, all of which must be found.
    Keywords(Vec<String>),
    /// Words (regular expressions between word boundaries), none of which may be found.
    Forbidden(Vec<String>),
    Keyword {
        pattern: String,
        amount: Amount,
    },
    Letter {
        letter: char,
        amount: Amount,
    },
    /// A language, by its two-letter code.
    Language(String),
    /// So many paragraphs, of which the nth (from 1) begins with a word.
    FirstWord {
        paragraphs: usize,
        nth: usize,
        word: String,
    },
    /// Exactly so many, between lines of `***`.
    Paragraphs(usize),
    Sentences(Amount),
    Words(Amount),
    NoComma,
    End(String),
    Quotation,
}

/// `at least` or `less than` so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    pub at_least: bool,
    pub count: usize,
}

impl Amount {
    fn holds(self, found: usize) -> bool {
        (found >= self.count) == self.at_least
    }
}

/// Which instructions a reply follows, in their order.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Followed {
    pub strict: Vec<bool>,
    pub loose: Vec<bool>,
}

/// Checks a reply.
pub fn check(instructions: &[Instruction], reply: &str) -> Followed {
    let readings = readings(reply);
    let follows = |rule: &Rule, text: &str| !text.trim().is_empty() && rule.holds(text);
    Followed {
        strict: instructions.iter().map(|i| follows(&i.rule, reply)).collect(),
        loose: instructions
            .iter()
            .map(|i| readings.iter().any(|text| follows(&i.rule, text)))
            .collect(),
    }
}

/// The eight readings of a reply.
fn readings(reply: &str) -> Vec<String> {
    let lines: Vec<&str> = reply.split('\n').collect();
    let joined = |lines: &[&str]| lines.join("\n").trim().to_owned();
    let last = lines.len().saturating_sub(1);
    let plain = [
        reply.to_owned(),
        joined(&lines[1.min(lines.len())..]),
        joined(&lines[..last]),
        joined(lines.get(1..last).unwrap_or_default()),
    ];
    let bare: Vec<String> = plain.iter().map(|text| text.replace('*', "")).collect();
    plain.into_iter().chain(bare).collect()
}

/// A pattern that is known to be right.
fn pattern(text: &str) -> Regex {
    #[allow(clippy::expect_used, reason = "patterns of this file, each used in a test")]
    Regex::new(text).expect("a pattern that can be read")
}

/// A user's pattern, case aside, as Python reads it; its words where it is no pattern.
fn anycase(text: &str) -> Regex {
    let build =
        |text: &str| RegexBuilder::new(text).case_insensitive(true).size_limit(1 << 20).build();
    build(text).or_else(|_| build(&regex::escape(text))).unwrap_or_else(|_| pattern("$^"))
}

impl Rule {
    /// Whether a text that says something follows the rule.
    fn holds(&self, text: &str) -> bool {
        match self {
            Self::Capitals(amount) => amount.holds(words::capital(text)),
            Self::English { upper } => {
                let case = if *upper { words::is_upper(text) } else { words::is_lower(text) };
                case && language::is(text, "en").unwrap_or(true)
            }
            Self::RepeatPrompt(prompt) => {
                text.trim().to_lowercase().starts_with(&prompt.trim().to_lowercase())
            }
            Self::TwoResponses => two_responses(text),
            Self::Placeholders(count) => pattern(r"\[.*?\]").find_iter(text).count() >= *count,
            Self::Postscript(marker) => postscript(text, marker),
            Self::Constrained => ["yes", "no", "maybe"]
                .iter()
                .any(|word| text.contains(&format!("My answer is {word}."))),
            Self::Json => is_json(text),
            Self::Sections { splitter, count } => {
                let splitter = match Regex::new(&format!(r"\s?{splitter}\s?\d+\s?")) {
                    Ok(splitter) => splitter,
                    Err(_) => pattern(&format!(r"\s?{}\s?\d+\s?", regex::escape(splitter))),
                };
                splitter.find_iter(text).count() >= *count
            }
            Self::Bullets(count) => {
                let stars = pattern(r"(?m)^\s*\*[^\*].*$").find_iter(text).count();
                stars + pattern(r"(?m)^\s*-.*$").find_iter(text).count() == *count
            }
            Self::Highlights(count) => {
                let one = pattern(r"\*[^\n\*]*\*");
                let two = pattern(r"\*\*[^\n\*]*\*\*");
                let says = |found: &str| !found.trim_matches('*').trim().is_empty();
                let found =
                    |kind: &Regex| kind.find_iter(text).filter(|m| says(m.as_str())).count();
                found(&one) + found(&two) >= *count
            }
            Self::Title => pattern(r"<<[^\n]+>>").find_iter(text).any(|found| {
                let inner = found.as_str().trim_start_matches('<').trim_end_matches('>');
                !inner.trim().is_empty()
            }),
            Self::Keywords(patterns) => patterns.iter().all(|p| anycase(p).is_match(text)),
            Self::Forbidden(words) => {
                !words.iter().any(|word| anycase(&format!(r"\b{word}\b")).is_match(text))
            }
            Self::Keyword { pattern, amount } => {
                amount.holds(anycase(pattern).find_iter(text).count())
            }
            Self::Letter { letter, amount } => {
                amount.holds(text.to_lowercase().chars().filter(|c| c == letter).count())
            }
            Self::Language(code) => language::is(text, code).unwrap_or(true),
            Self::FirstWord { paragraphs, nth, word } => first_word(text, *paragraphs, *nth, word),
            Self::Paragraphs(count) => paragraphs(text) == Some(*count),
            Self::Sentences(amount) => amount.holds(sentences::count(text)),
            Self::Words(amount) => amount.holds(words::count(text)),
            Self::NoComma => !text.contains(','),
            Self::End(phrase) => {
                let text = text.trim().trim_matches('"').to_lowercase();
                text.ends_with(&phrase.trim().to_lowercase())
            }
            Self::Quotation => {
                let text = text.trim();
                text.len() > 1 && text.starts_with('"') && text.ends_with('"')
            }
        }
    }
}

fn two_responses(text: &str) -> bool {
    let parts: Vec<&str> = text.split("******").map(str::trim).collect();
    let inner = parts.get(1..parts.len().saturating_sub(1)).unwrap_or_default();
    let said: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    inner.iter().all(|part| !part.is_empty()) && said.len() == 2 && said[0] != said[1]
}

fn postscript(text: &str, marker: &str) -> bool {
    let text = text.to_lowercase();
    let found = match marker {
        "P.P.S" => pattern(r"(?m)\s*p\.\s?p\.\s?s.*$"),
        "P.S." => pattern(r"(?m)\s*p\.\s?s\..*$"),
        other => anycase(&format!(r"(?m)\s*{}.*$", other.to_lowercase())),
    };
    found.is_match(&text)
}

/// Paragraphs between lines of three asterisks; None where one between others is empty.
fn paragraphs(text: &str) -> Option<usize> {
    let parts: Vec<&str> = pattern(r"\s?\*\*\*\s?").split(text).collect();
    let empty = |part: &str| part.trim().is_empty();
    let inner = parts.get(1..parts.len().saturating_sub(1)).unwrap_or_default();
    if inner.iter().any(|part| empty(part)) {
        return None;
    }
    Some(parts.iter().filter(|part| !empty(part)).count())
}

/// Whether a text has so many paragraphs (between empty lines) and the nth of all parts begins with a word.
fn first_word(text: &str, wanted: usize, nth: usize, word: &str) -> bool {
    let parts: Vec<&str> = text.split("\n\n").collect();
    let count = parts.iter().filter(|part| !part.trim().is_empty()).count();
    if nth == 0 || nth > count {
        return false;
    }
    let first = parts[nth - 1].split_whitespace().next().unwrap_or_default();
    let bare = first.trim_start_matches('\'').trim_start_matches('"');
    let end = bare.find(|c: char| ".,?!'\"".contains(c)).unwrap_or(bare.len());
    !first.is_empty() && count == wanted && bare[..end].to_lowercase() == word.to_lowercase()
}

fn is_json(text: &str) -> bool {
    let mut text = text.trim();
    for fence in ["```json", "```Json", "```JSON", "```"] {
        text = text.strip_prefix(fence).unwrap_or(text);
    }
    let text = text.strip_suffix("```").unwrap_or(text).trim();
    serde_json::from_str::<serde_json::Value>(text).is_ok()
        || (Json::read(text).is_ok() && !has_raw_controls(text))
}

/// Whether a text of JSON has a line end or another control character within a string.
fn has_raw_controls(text: &str) -> bool {
    let (mut inside, mut escaped) = (false, false);
    text.chars().any(|c| {
        let raw = inside && c < ' ';
        inside ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped && inside;
        raw
    })
}

#[cfg(test)]
mod tests;
