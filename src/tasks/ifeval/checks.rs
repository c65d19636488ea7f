//! Whether a text meets a demand.

use std::sync::LazyLock;

use regex::Regex;

use super::language::language;
use super::python::{is_lower, is_space, is_upper, strip};
use super::{Demand, json, sentences, words};

/// What counts as a constrained response.
const CONSTRAINED: [&str; 3] = ["My answer is yes.", "My answer is no.", "My answer is maybe."];

/// What divides two responses.
const SIX_ASTERISKS: &str = "******";

fn fixed(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a fixed regex")
}

static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| fixed(r"\[.*?\]"));
/// What Python calls a space, in front of an asterisk or a dash that a line begins with.
static STAR_BULLET: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?m)^[\s\x1c-\x1f]*\*[^*].*$"));
static DASH_BULLET: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?m)^[\s\x1c-\x1f]*-.*$"));
static HIGHLIGHT: LazyLock<Regex> = LazyLock::new(|| fixed(r"\*[^\n*]*\*"));
static DOUBLE_HIGHLIGHT: LazyLock<Regex> = LazyLock::new(|| fixed(r"\*\*[^\n*]*\*\*"));
static THREE_ASTERISKS: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"[\s\x1c-\x1f]?\*\*\*[\s\x1c-\x1f]?"));
static TITLE: LazyLock<Regex> = LazyLock::new(|| fixed(r"<<[^\n]+>>"));

impl Demand {
    /// Whether a text that is not empty meets it; none where a search took too many steps.
    pub(super) fn met(&self, text: &str) -> Option<bool> {
        Some(match self {
            Self::Keywords(keywords) => {
                for keyword in keywords {
                    if !keyword.is_in(text)? {
                        return Some(false);
                    }
                }
                true
            }
            Self::KeywordCount { keyword, bound } => bound.holds(keyword.count(text)?),
            Self::Forbidden(words) => {
                for word in words {
                    if word.is_in(text)? {
                        return Some(false);
                    }
                }
                true
            }
            Self::LetterCount { letter, bound } => {
                let lower = text.to_lowercase();
                bound.holds(lower.chars().filter(|c| c == letter).count())
            }
            Self::Language(wanted) => language(text).is_none_or(|found| found == *wanted),
            Self::Sentences(bound) => bound.holds(sentences::sentences(text).len()),
            Self::Words(bound) => bound.holds(words::count(text)),
            Self::Paragraphs(wanted) => paragraphs(text) == Some(*wanted),
            Self::FirstWord { paragraphs, nth, word } => first_word(text, *paragraphs, *nth, word),
            Self::Placeholders(least) => PLACEHOLDER.find_iter(text).count() >= *least,
            Self::Postscript(pattern) => pattern.is_in(&text.to_lowercase())?,
            Self::Bullets(wanted) => {
                let stars = STAR_BULLET.find_iter(text).count();
                stars + DASH_BULLET.find_iter(text).count() == *wanted
            }
            Self::Constrained => {
                let text = strip(text);
                CONSTRAINED.iter().any(|answer| text.contains(answer))
            }
            Self::Highlights(least) => highlights(text) >= *least,
            Self::Sections { opening, count } => opening.pieces(text)? > *count,
            Self::Json => json::is_json(unfenced(text)),
            Self::Title => TITLE.find_iter(text).any(|title| {
                let title = title.as_str().trim_start_matches('<').trim_end_matches('>');
                !strip(title).is_empty()
            }),
            Self::TwoResponses => two_responses(text),
            Self::Repeat(prompt) => strip(text).to_lowercase().starts_with(prompt),
            Self::End(phrase) => {
                strip(text).trim_matches('"').to_lowercase().ends_with(phrase.as_str())
            }
            Self::CapitalWords(bound) => bound.holds(words::capital(text)),
            Self::EnglishUpper => is_upper(text) && is_english(text),
            Self::EnglishLower => is_lower(text) && is_english(text),
            Self::NoComma => !text.contains(','),
            Self::Quoted => {
                let text = strip(text);
                text.len() > 1 && text.starts_with('"') && text.ends_with('"')
            }
        })
    }
}

/// Where nothing tells the language, it is taken for English.
fn is_english(text: &str) -> bool {
    language(text).is_none_or(|found| found == "en")
}

/// How many paragraphs three asterisks divide; none where one in the middle is empty.
fn paragraphs(text: &str) -> Option<usize> {
    let pieces: Vec<&str> = THREE_ASTERISKS.split(text).collect();
    let filled = |piece: &&str| !strip(piece).is_empty();
    let inner = pieces.get(1..pieces.len() - 1).unwrap_or_default();
    inner.iter().all(filled).then(|| pieces.iter().filter(|piece| filled(piece)).count())
}

/// Blank paragraphs are not counted in the sum, yet the nth is taken of all.
fn first_word(text: &str, wanted: usize, nth: usize, word: &str) -> bool {
    let pieces: Vec<&str> = text.split("\n\n").collect();
    let count = pieces.iter().filter(|piece| !strip(piece).is_empty()).count();
    if nth > count || count != wanted {
        return false;
    }
    let piece = nth.checked_sub(1).and_then(|at| pieces.get(at)).map_or("", |piece| strip(piece));
    let first = piece.split(is_space).next().unwrap_or_default();
    let bare = first.trim_start_matches('\'').trim_start_matches('"');
    let end = bare.find(['.', ',', '?', '!', '\'', '"']).unwrap_or(bare.len());
    // Letter by letter, as no letter's lower form depends on its neighbours there.
    let lower: String = bare[..end].chars().flat_map(char::to_lowercase).collect();
    !piece.is_empty() && lower == word
}

/// A part between two double asterisks counts again as a double one, where it is one.
fn highlights(text: &str) -> usize {
    let filled = |part: &str| !strip(part).is_empty();
    let single = HIGHLIGHT.find_iter(text).filter(|found| filled(found.as_str().trim_matches('*')));
    let double = DOUBLE_HIGHLIGHT.find_iter(text).filter(|found| {
        let part = found.as_str();
        filled(part.get(2..part.len() - 2).unwrap_or_default())
    });
    single.count() + double.count()
}

/// A text without the fence around it.
fn unfenced(text: &str) -> &str {
    let mut text = strip(text);
    for open in ["```json", "```Json", "```JSON", "```"] {
        text = text.strip_prefix(open).unwrap_or(text);
    }
    strip(text.strip_suffix("```").unwrap_or(text))
}

fn two_responses(text: &str) -> bool {
    let pieces: Vec<&str> = text.split(SIX_ASTERISKS).map(strip).collect();
    let inner = pieces.get(1..pieces.len() - 1).unwrap_or_default();
    if inner.iter().any(|piece| piece.is_empty()) {
        return false;
    }
    let filled: Vec<&&str> = pieces.iter().filter(|piece| !piece.is_empty()).collect();
    matches!(filled.as_slice(), [first, second] if first != second)
}
