//! Problems as methods see them, and answers read out of replies. Uses no other room.

mod code;
mod extract;
mod value;
mod verdict;

use serde::{Deserialize, Serialize};

pub use code::{Code, CodeRule, defines, read_code};
pub use extract::{Extracted, LADDER, Rule, extract, tagged, without_thoughts};
pub use value::{Equality, Graded, Ground, compare, grade};
pub use verdict::{Score, Scores, Verdict};

/// What kind of answer a problem wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A value: a number, an expression, a choice.
    #[default]
    Math,
    /// A program with a named entry point.
    Code,
    /// The reply itself.
    Text,
}

/// A problem without its gold answer, which never reaches a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub id: String,
    pub question: String,
    #[serde(default)]
    pub kind: Kind,
    /// Code: the function that must exist.
    #[serde(default)]
    pub entry_point: Option<String>,
    /// Code: checks that the question itself shows.
    #[serde(default)]
    pub public_checks: Vec<String>,
}
