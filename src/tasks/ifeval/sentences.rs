//! How many sentences a text has, counted as the Punkt tokenizer counts them (Kiss and Strunk 2006), whose
//! English model the official verdicts come from.
//!
//! A sentence may end at `.`, `?` or `!` before white space and another word, or before closing
//! punctuation. `?` and `!` always end one; a full stop does unless its word is an abbreviation, an initial
//! before a name, or a number or an ellipsis that a small letter follows.

/// Words that are written with a full stop and go on.
const ABBREVIATIONS: [&str; 59] = [
    "adm", "ala", "apr", "ariz", "aug", "ave", "bros", "calif", "capt", "cie", "cmdr", "co", "col",
    "colo", "conn", "corp", "ct", "d.c", "dec", "dr", "e.g", "feb", "fla", "fri", "ga", "gen",
    "gov", "i.e", "ill", "inc", "jan", "jr", "lt", "ltd", "maj", "mass", "mg", "messrs", "mr",
    "mrs", "ms", "mt", "nov", "oct", "okla", "pa", "ph.d", "prof", "rep", "reps", "sen", "sens",
    "sep", "sept", "sgt", "st", "u.s", "va", "vs",
];

/// Small words that, with a capital letter, begin a sentence also after an abbreviation.
const STARTERS: [&str; 34] = [
    "The", "This", "That", "These", "Those", "It", "In", "On", "At", "He", "She", "They", "We",
    "You", "There", "But", "And", "If", "When", "While", "As", "For", "After", "Before", "However",
    "Although", "Some", "Many", "His", "Her", "Their", "Our", "What", "To",
];

/// What may follow the end of a sentence at once.
const AFTER: &str = "?!)\";}]*:@'({[";

/// The number of sentences in a text.
pub fn count(text: &str) -> usize {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() {
        return 0;
    }
    let mut sentences = 1;
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).copied();
        if ends(word, next) && next.is_some_and(|next| !is_closing(next) || words.len() > at + 2) {
            sentences += 1;
        }
    }
    sentences
}

/// A word that only closes what stands before it belongs to the sentence before.
fn is_closing(word: &str) -> bool {
    word.chars().all(|c| "\"')]}".contains(c))
}

/// Whether a sentence ends in this word, another one following.
fn ends(word: &str, next: Option<&str>) -> bool {
    let places = word.char_indices().rev().filter(|(_, c)| ".?!".contains(*c));
    for (place, sign) in places {
        let rest = &word[place + 1..];
        let open = match rest.chars().next() {
            None => next.is_some(),
            Some(c) => AFTER.contains(c),
        };
        if !open {
            continue;
        }
        // The rightmost place in a word decides.
        let following = match rest.is_empty() {
            true => next,
            false => Some(rest).filter(|rest| rest.chars().any(char::is_alphanumeric)).or(next),
        };
        return sign != '.' || full_stop(&word[..place], following);
    }
    false
}

/// Whether the full stop behind `before` ends a sentence.
fn full_stop(before: &str, next: Option<&str>) -> bool {
    let begins = |test: fn(char) -> bool| {
        let first = next.and_then(|next| next.chars().find(|c| c.is_alphanumeric()));
        first.is_some_and(test)
    };
    let bare = before.trim_start_matches(|c: char| "\"'([{*_`“‘".contains(c));
    if bare.ends_with('.') {
        return begins(char::is_uppercase);
    }
    let lower = bare.to_lowercase();
    let last = lower.rsplit('-').next().unwrap_or(&lower);
    let begun = || next.is_some_and(|next| STARTERS.contains(&next));
    if ABBREVIATIONS.contains(&lower.as_str()) || ABBREVIATIONS.contains(&last) {
        return begun();
    }
    let dotted = bare.contains('.') && bare.split('.').all(|part| part.chars().count() == 1);
    if dotted && bare.chars().all(|c| c == '.' || c.is_alphabetic()) {
        return begun();
    }
    let mut chars = bare.chars();
    let initial = matches!((chars.next(), chars.next()), (Some(c), None) if c.is_alphabetic());
    if initial {
        return !begins(char::is_alphabetic);
    }
    if !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit() || c == ',') {
        return !begins(char::is_lowercase);
    }
    true
}
