//! What a grader says of an answer.

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
