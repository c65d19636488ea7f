//! Whether an answer is the gold answer: typed values read out of LaTeX and plain text, and compared.
//!
//! `grade` says Equal, Different or Undecided, and by which rule. Undecided is never right. Nothing here
//! compares with a tolerance: rational numbers, polynomials, surds, pi and e are exact, other values agree to
//! 50 digits, and what is neither is undecided. Only the whole answer is graded, never a part of it.
//!
//! Policies, in one place:
//!
//! - *Same text*: what is written alike (spaces and layout aside) is equal, whatever it is.
//! - *Decimals*: two numbers that end are compared exactly. Against a value that has no end as a decimal
//!   (1/3, √2, π) a decimal must be that value rounded to the digits that it states, at least six of them
//!   after the point and six from the first that is not zero: 0.333333 is 1/3, 0.3333 and 3.14159 are
//!   neither 1/3 nor π. Digits that visibly repeat (`0.333…`, `0.\overline{3}`) are exact.
//! - *Thousands*: `1,234`, `10\,000`, `8{,}880`, `11,\! 111`; between brackets a bare comma separates.
//! - *Percent*: `50\%` is 50. 0.5 is not 50; whether `50\%` is 0.5 is undecided.
//! - *Units*: dropped where one side has none. Words behind a number are one where they name what is counted
//!   (a plural, a known unit), not where they change it (`18 squared`) or deny it; `million` and its like
//!   belong to the number. Two units convert (1 m, 100 cm) or are told apart; of unknown
//!   words nothing is said. Money is a unit. Degrees are one, and 90° is not π/2; within a function they
//!   are angles.
//! - *Bases*: `11_8` is only the same digits in the same base.
//! - *Order*: counts in tuples and matrices, not in sets and not in values beside each other without brackets.
//!   Such a list against a tuple is undecided.
//! - *Brackets*: (1,2) and [1,2] differ, since they may be intervals. Three and more items in other brackets
//!   are undecided.
//! - *±*: two values, all upper signs and all lower ones; it is not one of them.
//! - *Names*: `x = 1, y = 2` against `1, 2` in that order; `2, 1` is undecided.
//! - *Equations*: equal up to a constant factor; what holds always or never (`1 = 2`) is no equation. `x = 5` against 5 is 5; the name must not occur on the
//!   right. A chain of equal constants is their value.
//! - *Inequalities* in one variable are intervals; unions are sorted and joined where they touch.
//! - *Times of day* and ratios are no numbers; ratios may be reduced, times not.
//! - *Words*: case and punctuation aside. Capital letters alone are a word: `HHT` is not `THH`. Other words are undecided, but for opposites.
//! - *Options*: `(B)`, `B)`, `\text{B}` and `B` are one. Another letter is another option.
//! - *Functions*: `log` without a base is to base 10. Odd roots of negative numbers are real.
//! - *Variables*: expressions that no normal form decides are compared at up to 20 fixed points, real ones
//!   unless `i` occurs; where one side has no value the point is left out, and fewer than four shared points
//!   decide nothing. Nor do points where one side alone is made of pieces (absolute values, roots, inverse
//!   functions); where both are, points are looked at too that lie beyond all numbers that occur.
//! - *Limits*: `limits.rs`; what is over one is undecided by a rule of its own.

mod compare;
mod exact;
mod float;
mod lex;
mod limits;
mod names;
mod numerals;
mod parse;
mod points;
mod poly;
mod read;
mod relations;
mod scalar;
mod shape;
#[cfg(test)]
mod tests;
mod token;
mod tree;
mod units;

use limits::{Steps, Stop};
use shape::Value;
use token::Item;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Equality {
    Equal,
    Different,
    /// It could not be told; the rule says why.
    Undecided,
}

/// What decided a comparison, or what kept it from a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    SameText,
    Empty,
    /// Normal forms, exactly.
    Exact,
    /// Values to 50 digits.
    Digits,
    /// Values to 50 digits at points.
    Points,
    /// A decimal, by rounding.
    Rounded,
    /// A decimal that is rounded well and states too few digits.
    FewDigits,
    Unit,
    Percent,
    Base,
    Ratio,
    Choice,
    Words,
    /// Item by item.
    Items,
    Brackets,
    Interval,
    Equation,
    /// The two are values of different kinds.
    Kinds,
    /// At least one side could not be read.
    Unread,
    /// At least one side has no value, as `1/0`.
    Undefined,
    /// Both sides have a value at too few points.
    FewPoints,
    /// The same at all points, but one side is made of pieces, of which some may lie elsewhere.
    Pieces,
    /// Too close to tell with the digits that are computed.
    Precision,
    TooLarge,
}

impl Ground {
    /// The rule in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::SameText => "same text",
            Self::Empty => "empty",
            Self::Exact => "exact value",
            Self::Digits => "50 digits",
            Self::Points => "values at points",
            Self::Rounded => "rounding",
            Self::FewDigits => "too few digits",
            Self::Unit => "unit",
            Self::Percent => "percent",
            Self::Base => "base",
            Self::Ratio => "ratio",
            Self::Choice => "option",
            Self::Words => "words",
            Self::Items => "item by item",
            Self::Brackets => "brackets",
            Self::Interval => "interval",
            Self::Equation => "equation",
            Self::Kinds => "different kinds",
            Self::Unread => "not read",
            Self::Undefined => "no value",
            Self::FewPoints => "too few points",
            Self::Pieces => "defined in pieces",
            Self::Precision => "too close to tell",
            Self::TooLarge => "too large",
        }
    }
}

/// What was found, and the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Graded {
    pub equality: Equality,
    pub rule: Ground,
}

/// Whether an answer is the gold answer. The same for both orders of the two.
pub fn grade(answer: &str, gold: &str) -> Graded {
    grade_within(answer, gold, &Steps::new())
}

/// `grade` without the rule.
pub fn compare(one: &str, other: &str) -> Equality {
    grade(one, other).equality
}

fn grade_within(answer: &str, gold: &str, steps: &Steps) -> Graded {
    let (one, other) = (bare(answer), bare(gold));
    let undecided = |rule| Graded { equality: Equality::Undecided, rule };
    if !says_something(one) || !says_something(other) {
        return undecided(Ground::Empty);
    }
    if one == other {
        return Graded { equality: Equality::Equal, rule: Ground::SameText };
    }
    // One order of the two, so that the other gives the same.
    if one <= other { directed(one, other, steps) } else { directed(other, one, steps) }
}

/// Compares two texts that are not the same, in this order.
fn directed(one: &str, other: &str, steps: &Steps) -> Graded {
    let (mine, theirs) = match (lex::lex(one), lex::lex(other)) {
        (Ok(mine), Ok(theirs)) => (mine, theirs),
        (Err(stop), _) | (_, Err(stop)) => return stop.into(),
    };
    let alike =
        mine.len() == theirs.len() && mine.iter().zip(&theirs).all(|(a, b)| a.token == b.token);
    if alike && !mine.is_empty() {
        return Graded { equality: Equality::Equal, rule: Ground::SameText };
    }
    match (value(&mine), value(&theirs)) {
        (Ok(a), Ok(b)) => compare::compare(&a, &b, steps),
        (Err(stop), _) | (_, Err(stop)) => stop.into(),
    }
}

fn value(items: &[Item]) -> Result<Value, Stop> {
    read::read(items, 0).or_else(|stop| match stop {
        Stop::TooLarge => Err(stop),
        _ => read::words(items).ok_or(stop),
    })
}

/// A text without what only marks it: spaces, bold, quotes of code, dollars, a full stop, a box around all.
fn bare(text: &str) -> &str {
    const PAIRS: [(&str, &str); 8] = [
        ("**", "**"),
        ("$$", "$$"),
        ("\\(", "\\)"),
        ("\\[", "\\]"),
        ("$", "$"),
        ("`", "`"),
        ("\"", "\""),
        ("__", "__"),
    ];
    let mut text = text.trim();
    loop {
        let before = text;
        for (open, close) in PAIRS {
            if text.len() >= open.len() + close.len()
                && let Some(inner) = text.strip_prefix(open).and_then(|t| t.strip_suffix(close))
                && !inner.contains(open)
                && !inner.ends_with('\\')
            {
                text = inner.trim();
            }
        }
        if let Some(inner) = text.strip_suffix('.').filter(|inner| !inner.ends_with('.')) {
            text = inner.trim();
        }
        if text.len() == before.len() {
            return text;
        }
    }
}

/// Whether a text is more than punctuation; an echoed `...` is no answer.
fn says_something(text: &str) -> bool {
    let mathematics = |c: char| "∞∅πℝ".contains(c);
    text.contains('\\') || text.chars().any(|c| c.is_alphanumeric() || mathematics(c))
}
