//! The sentences of an English text, divided as Punkt does (Kiss and Strunk, 2006): a full stop ends a
//! sentence unless it belongs to an abbreviation, an initial or a number that goes on; what stands
//! around it decides.

use std::sync::LazyLock;

use regex::Regex;

use super::ortho;
use super::python::is_space;

/// The sentences, none of them empty, without the space between them.
pub fn sentences(text: &str) -> Vec<&str> {
    let signs = Signs::of(text);
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    let mut start = 0;
    for place in places(&signs) {
        if ends_sentence(&signs.chars[place.word..place.seen]) {
            cuts.push((start, place.stop + 1));
            start = place.next;
        }
    }
    let end = signs.chars.iter().rposition(|c| !is_space(*c)).map_or(0, |at| at + 1);
    cuts.push((start, end.max(start)));
    realigned(&signs, &cuts).into_iter().map(|(from, to)| signs.text(from, to)).collect()
}

/// A text by its characters.
struct Signs<'t> {
    text: &'t str,
    chars: Vec<char>,
    /// Where each begins, in bytes; then the length.
    bytes: Vec<usize>,
}

impl<'t> Signs<'t> {
    fn of(text: &'t str) -> Self {
        let mut bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        bytes.push(text.len());
        Self { text, chars: text.chars().collect(), bytes }
    }

    fn text(&self, from: usize, to: usize) -> &'t str {
        &self.text[self.bytes[from]..self.bytes[to]]
    }
}

/// A place where a sentence may end.
struct Place {
    /// Where the word before it begins.
    word: usize,
    /// The full stop, question or exclamation mark.
    stop: usize,
    /// Where the next sentence would begin.
    next: usize,
    /// What is looked at ends here: a mark, or the next word.
    seen: usize,
}

fn is_stop(c: char) -> bool {
    matches!(c, '.' | '?' | '!')
}

/// What ends a word and is none of it.
fn is_mark(c: char) -> bool {
    matches!(c, ')' | '"' | ';' | '}' | ']' | '*' | ':' | '@' | '\'' | '(' | '{' | '[' | '?' | '!')
}

/// What no word begins with.
fn is_no_start(c: char) -> bool {
    matches!(
        c,
        '(' | '"'
            | '`'
            | '{'
            | '['
            | ':'
            | ';'
            | '&'
            | '#'
            | '*'
            | '@'
            | ')'
            | '}'
            | ']'
            | '-'
            | ','
    )
}

/// Stops with something behind them; of several at one word the last.
fn places(signs: &Signs<'_>) -> Vec<Place> {
    let chars = &signs.chars;
    let mut places: Vec<Place> = Vec::new();
    // The word and the stop found last.
    let (mut word, mut stop) = (0, 0);
    for (at, _) in chars.iter().enumerate().filter(|(_, c)| is_stop(**c)) {
        let Some((next, seen)) = behind(chars, at + 1) else { continue };
        // A space right at the beginning of what lies between divides nothing.
        let blank = |c: &char| c.is_ascii_whitespace() || *c == '\u{b}';
        let last = chars[stop..at].iter().rposition(blank).filter(|place| *place > 0);
        let begins = last.map_or(word, |place| stop + place + 1);
        if !places.is_empty() && stop > begins {
            places.pop();
        }
        places.push(Place { word: begins, stop: at, next, seen });
        (word, stop) = (begins, at);
    }
    places
}

/// What follows a stop: where a next sentence would begin, and where what is looked at ends.
fn behind(chars: &[char], at: usize) -> Option<(usize, usize)> {
    let first = *chars.get(at)?;
    if is_mark(first) {
        return Some((at, at + 1));
    }
    if !is_space(first) {
        return None;
    }
    let next = at + chars[at..].iter().position(|c| !is_space(*c))?;
    let length = chars[next..].iter().position(|c| is_space(*c));
    Some((next, length.map_or(chars.len(), |length| next + length)))
}

/// Closing marks go to the sentence before them.
fn realigned(signs: &Signs<'_>, cuts: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut whole = Vec::new();
    let mut taken = 0;
    for (at, &(from, to)) in cuts.iter().enumerate() {
        let from = from + taken;
        let closing = cuts.get(at + 1).and_then(|&(start, end)| {
            let (marks, length) = closing(&signs.chars[start..end])?;
            Some((start + marks, length))
        });
        match closing {
            Some((end, length)) => {
                whole.push((from, end));
                taken = length;
            }
            None => {
                taken = 0;
                if from < to {
                    whole.push((from, to));
                }
            }
        }
    }
    whole
}

/// The closing marks that a sentence begins with, and their length with the space behind them. They must
/// be followed by space, by dashes, or by nothing on their line.
fn closing(chars: &[char]) -> Option<(usize, usize)> {
    let close = |c: &char| matches!(c, '"' | '\'' | ')' | ']' | '}');
    let marks = chars.iter().take_while(|c| close(c)).count();
    let spaces = chars[marks..].iter().take_while(|c| is_space(**c)).count();
    let dashes = chars[marks..].starts_with(&['-', '-']);
    (marks > 0 && (spaces > 0 || dashes || marks == chars.len())).then_some((marks, marks + spaces))
}

/// A token around a stop.
struct Token {
    text: String,
    /// In lower case; a number is one type.
    kind: String,
    abbreviation: bool,
    ellipsis: bool,
    ends: bool,
}

/// The type of all numbers.
pub const NUMBER: &str = "##number##";

impl Token {
    fn of(text: String) -> Self {
        let lower = text.to_lowercase();
        let kind = if IS_NUMBER.is_match(&lower) { NUMBER.to_owned() } else { lower };
        let dots = text.chars().take_while(|c| *c == '.').count();
        let ellipsis = dots > 1 && dots == text.len();
        let (mut abbreviation, mut ends) = (false, matches!(text.as_str(), "." | "?" | "!"));
        if let Some(word) = text.strip_suffix('.').filter(|w| !w.is_empty() && !w.ends_with('.')) {
            let word = word.to_lowercase();
            let tail = word.rsplit('-').next().unwrap_or_default();
            abbreviation = ortho::is_abbreviation(&word) || ortho::is_abbreviation(tail);
            ends = !abbreviation;
        }
        Self { text, kind, abbreviation, ellipsis, ends }
    }

    /// Its type without the full stop.
    fn bare(&self) -> &str {
        match self.kind.strip_suffix('.') {
            Some(bare) if !bare.is_empty() => bare,
            _ => &self.kind,
        }
    }

    /// Its type, without a full stop that ends a sentence.
    fn shown(&self) -> &str {
        if self.ends { self.bare() } else { &self.kind }
    }

    fn begins(&self, with: fn(char) -> bool) -> bool {
        self.text.chars().next().is_some_and(with)
    }

    /// One letter and a full stop.
    fn is_initial(&self) -> bool {
        IS_INITIAL.is_match(&self.text)
    }
}

/// `-1,000.5`, `.5`, `12.`.
static IS_NUMBER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^-?[.,]?\d[\d,.-]*$").expect("a fixed regex"));

/// Letters and numbers that are not written in digits.
static IS_INITIAL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}_--\d]\.$").expect("a fixed regex"));

/// Whether a sentence ends within what is looked at: a stop, and something behind it.
fn ends_sentence(seen: &[char]) -> bool {
    let mut tokens: Vec<Token> = seen.split(|c| *c == '\n').flat_map(tokens).collect();
    for at in 0..tokens.len() {
        let (left, right) = tokens.split_at_mut(at + 1);
        if let (Some(token), Some(next)) = (left.last_mut(), right.first()) {
            settle(token, next);
        }
    }
    let count = tokens.len();
    tokens.iter().position(|token| token.ends).is_some_and(|at| at + 1 < count)
}

/// Decides of a token with a full stop by its type and by what follows.
fn settle(token: &mut Token, next: &Token) {
    if !token.text.ends_with('.') {
        return;
    }
    let initial = token.is_initial();
    let upper = next.begins(char::is_uppercase);
    if ortho::belong_together(token.bare(), next.shown()) {
        token.ends = false;
        return;
    }
    let starts = begins_sentence(next);
    if (token.abbreviation || token.ellipsis)
        && !initial
        && (starts == Some(true) || (upper && ortho::is_starter(next.shown())))
    {
        token.ends = true;
        return;
    }
    if initial || token.bare() == NUMBER {
        let name = || initial && upper && !ortho::of(next.shown()).lower;
        if starts == Some(false) || (starts.is_none() && name()) {
            token.ends = false;
        }
    }
}

/// Whether the way a word is written says that a sentence begins with it; none where it says nothing.
fn begins_sentence(next: &Token) -> Option<bool> {
    if matches!(next.text.as_str(), ";" | ":" | "," | "." | "!" | "?") {
        return Some(false);
    }
    let seen = ortho::of(next.shown());
    match () {
        () if next.begins(char::is_lowercase) => Some(false),
        () if next.begins(char::is_uppercase) && seen.lower && !seen.upper_within => Some(true),
        () => None,
    }
}

/// The tokens of a line: words up to what ends them, runs of dashes or dots, and other marks one by one.
fn tokens(line: &[char]) -> Vec<Token> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&first) = line.get(at) {
        let length = match run(line, at) {
            _ if is_space(first) && run(line, at) == 0 => {
                at += 1;
                continue;
            }
            0 if is_no_start(first) => 1,
            0 => {
                1 + line[at + 1..]
                    .iter()
                    .enumerate()
                    .take_while(|(behind, _)| !word_ends(line, at + 1 + behind))
                    .count()
            }
            run => run,
        };
        found.push(Token::of(line[at..at + length].iter().collect()));
        at += length;
    }
    found
}

/// The length of a run of dashes or dots, also of dots with a space between each two.
fn run(line: &[char], at: usize) -> usize {
    let same = |sign: char| line[at..].iter().take_while(|c| **c == sign).count();
    match line.get(at) {
        Some('-') if same('-') > 1 => same('-'),
        Some('.') if same('.') > 1 => same('.'),
        Some('.') => {
            let pair = |two: &&[char]| two.len() == 2 && two[0] == '.' && is_space(two[1]);
            let mut pairs = line[at..].chunks(2).take_while(pair).count();
            while pairs > 1 && line.get(at + 2 * pairs) != Some(&'.') {
                pairs -= 1;
            }
            if pairs > 1 { 2 * pairs + 1 } else { 0 }
        }
        _ => 0,
    }
}

/// Whether a word that came so far ends before this place.
fn word_ends(line: &[char], at: usize) -> bool {
    let ends =
        |at: usize| line.get(at).is_none_or(|c| is_space(*c) || is_mark(*c)) || run(line, at) > 0;
    ends(at) || (line[at] == ',' && ends(at + 1))
}
