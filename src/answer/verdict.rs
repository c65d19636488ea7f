//! What a grader says of an answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Whether an answer is right. Only `Right` counts as right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Right,
    Wrong,
    /// The grader could not tell.
    Undecided,
}

/// A share that a grader gives beside its verdict: `sum` of `of`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    pub sum: f64,
    pub of: f64,
}

/// Shares by their names, such as `F1`; over several items sums are added, and so are their wholes.
pub type Scores = BTreeMap<String, Score>;
