//! IFEval (Zhou et al., 2023): instructions that a program can check, 25 kinds of them, strictly and
//! loosely.
//!
//! The verdicts are those of the official evaluation, so what it does with Python's regexes and text
//! methods is done here (`python`), also where it is odd. It draws at random in two places, and there we
//! do not: the language of a text is found from a fixed seed, and a letter to be counted that is no
//! letter from a to z is counted itself. An argument that the official evaluation would draw where it is
//! missing makes a record damaged here.
//!
//! Sentences are Punkt's. Its knowledge of how words are written is cut to the more common ones (`ortho`),
//! so behind an abbreviation, an initial or dots a rare word may be seen otherwise.

mod checks;
mod json;
mod language;
mod ortho;
mod python;
mod read;
mod sentences;
mod words;

use python::Pattern;
pub use read::instructions;

/// An instruction of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Its kind, such as `punctuation:no_comma`.
    pub id: String,
    demand: Demand,
}

/// Which instructions a reply follows, in their order.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Followed {
    /// By the reply as it is.
    pub strict: Vec<bool>,
    /// By the reply, or by it without its first line, its last line, its asterisks, or any of these
    /// together.
    pub loose: Vec<bool>,
}

impl Followed {
    /// The rule for people: `strict 2 of 3, loose 3 of 3`.
    pub fn shown(&self) -> String {
        let of = |each: &[bool]| {
            format!("{} of {}", each.iter().filter(|followed| **followed).count(), each.len())
        };
        format!("strict {}, loose {}", of(&self.strict), of(&self.loose))
    }
}

/// Which instructions a reply follows. An empty reply follows none; nor does one on which the search for a
/// regex of the record takes too many steps.
pub fn check(instructions: &[Instruction], response: &str) -> Followed {
    let variants = loosened(response);
    let follows = |instruction: &Instruction, text: &str| {
        !python::strip(text).is_empty() && instruction.demand.met(text).unwrap_or(false)
    };
    let strict = instructions.iter().map(|one| follows(one, response)).collect();
    let loosely = |one: &Instruction| variants.iter().any(|variant| follows(one, variant));
    Followed { strict, loose: instructions.iter().map(loosely).collect() }
}

/// The reply, and what is left of it without its first line, its last line, both; each also without
/// asterisks.
fn loosened(response: &str) -> Vec<String> {
    let lines: Vec<&str> = response.split('\n').collect();
    let inner = |from: usize, to: usize| {
        python::strip(&lines.get(from..to).unwrap_or_default().join("\n")).to_owned()
    };
    let (count, last) = (lines.len(), lines.len() - 1);
    let cut = [response.to_owned(), inner(1, count), inner(0, last), inner(1, last)];
    let bare: Vec<String> = cut.iter().map(|text| text.replace('*', "")).collect();
    cut.into_iter().chain(bare).collect()
}

/// How a count is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Below(usize),
    From(usize),
}

impl Bound {
    fn holds(self, count: usize) -> bool {
        match self {
            Self::Below(limit) => count < limit,
            Self::From(limit) => count >= limit,
        }
    }
}

/// What an instruction asks of a reply.
#[derive(Clone, Debug, PartialEq)]
enum Demand {
    /// Each is found somewhere, without case.
    Keywords(Vec<Pattern>),
    KeywordCount {
        keyword: Pattern,
        bound: Bound,
    },
    /// None is found between word boundaries.
    Forbidden(Vec<Pattern>),
    LetterCount {
        letter: char,
        bound: Bound,
    },
    /// An ISO 639-1 code.
    Language(String),
    Sentences(Bound),
    Words(Bound),
    /// Divided by `***`.
    Paragraphs(usize),
    /// Divided by blank lines; the first word of one, in lower case.
    FirstWord {
        paragraphs: usize,
        nth: usize,
        word: String,
    },
    /// At least so many `[…]`.
    Placeholders(usize),
    Postscript(Pattern),
    Bullets(usize),
    /// Yes, no or maybe, in a given wording.
    Constrained,
    /// At least so many `*…*`.
    Highlights(usize),
    /// At least so many, each opened by a word and a number.
    Sections {
        opening: Pattern,
        count: usize,
    },
    Json,
    /// `<<…>>`.
    Title,
    /// Two different ones, divided by `******`.
    TwoResponses,
    /// The question first, word by word.
    Repeat(String),
    /// In lower case.
    End(String),
    CapitalWords(Bound),
    EnglishUpper,
    EnglishLower,
    NoComma,
    Quoted,
}
