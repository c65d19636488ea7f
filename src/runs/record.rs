//! The journal's lines.

use serde::{Deserialize, Serialize};

use crate::answer::Scores;
pub use crate::answer::Verdict;
use crate::llm::Cost;
use crate::methods::{Failure, Outcome, Status};

use super::SCHEMA;
use super::run::Judgement;

/// What decides the content of a line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub task: String,
    pub item: String,
    /// The method and its options, as the plan names them.
    pub method: String,
    pub model_digest: String,
    pub prompts_digest: String,
    pub seed: u64,
    /// Which of several samples of the item.
    pub sample: u32,
}

/// How an item ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Ended {
    Answered {
        answer: String,
        verdict: Verdict,
        /// The grader's rule that decided.
        rule: String,
        /// Shares beside the verdict, where the task has any.
        #[serde(default, skip_serializing_if = "Scores::is_empty")]
        scores: Scores,
    },
    Failed {
        /// The kind of failure, e.g. `format`.
        failure: String,
        why: String,
    },
}

impl Ended {
    /// Whether the answer is right; what failed or was not decided is not.
    pub fn is_right(&self) -> bool {
        matches!(self, Self::Answered { verdict: Verdict::Right, .. })
    }
}

/// The first program of a method that judges it, and what it was worth without any correction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct First {
    /// Its verdict by itself; wrong where it gives no answer.
    pub verdict: Verdict,
    pub units: u32,
    /// Units whose first judgement was WRONG.
    pub wrong_units: u32,
}

/// One finished item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub schema: u32,
    #[serde(flatten)]
    pub key: Key,
    /// The row's name in tables, e.g. `ralu[synthesis=rebuilt]`.
    pub row: String,
    #[serde(flatten)]
    pub ended: Ended,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first: Option<First>,
    pub rounds: u32,
    pub format_failures: u32,
    /// All calls. Which rows were cached depends on what ran beside it, as times do; the rest does not.
    pub cost: Cost,
    pub seconds: f64,
}

impl Record {
    /// A line from how an item ended. `judgement` is of its answer.
    pub(super) fn new(
        key: Key,
        row: String,
        outcome: &Outcome,
        judgement: Option<Judgement>,
        first: Option<First>,
        seconds: f64,
    ) -> Self {
        let ended = match &outcome.status {
            Status::Answered { answer } => {
                let judgement = judgement.unwrap_or(Judgement {
                    verdict: Verdict::Undecided,
                    rule: "not judged".to_owned(),
                    scores: Scores::new(),
                });
                Ended::Answered {
                    answer: answer.clone(),
                    verdict: judgement.verdict,
                    rule: judgement.rule,
                    scores: judgement.scores,
                }
            }
            Status::Failed { why } => {
                Ended::Failed { failure: kind(why).to_owned(), why: why.to_string() }
            }
        };
        Self {
            schema: SCHEMA,
            key,
            row,
            ended,
            first,
            rounds: outcome.rounds,
            format_failures: outcome.format_failures,
            cost: outcome.cost,
            seconds,
        }
    }
}

/// The kinds of failure as the journal names them.
fn kind(failure: &Failure) -> &'static str {
    match failure {
        Failure::Format { .. } => "format",
        Failure::ContextFull { .. } => "context_full",
        Failure::Unfit => "unfit",
        Failure::Model { .. } => "model",
        Failure::Program { .. } => "program",
        Failure::Sandbox { .. } => "sandbox",
        Failure::Prompt { .. } => "prompt",
    }
}
