//! Published methods, one file each, readable beside its paper. A method knows `llm`, `answer` and
//! `program`, and nothing of engines or devices.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::answer::Problem;
use crate::llm::{Cost, Llm, Sink};

/// A way of solving problems with a language model.
#[async_trait]
pub trait Method: Send + Sync {
    /// As in tables: the paper's name, options of ours in brackets.
    fn name(&self) -> String;

    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome;
}

/// What a method works with.
#[derive(Clone)]
pub struct Context {
    pub llm: Arc<dyn Llm>,
    pub sandbox: Arc<crate::program::sandbox::Sandbox>,
    pub prompts: Arc<crate::llm::Prompts>,
    pub sink: Arc<dyn Sink>,
    pub seed: u64,
    /// Which of several samples of the item.
    pub sample: u32,
    /// Settings of replies that the user fixed; `None` leaves the method's default.
    pub temperature: Option<f32>,
    pub max_tokens: Option<usize>,
}

/// How solving a problem ended: always an answer or a stated failure.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub status: Status,
    /// The last program, where the method writes one.
    pub program: Option<String>,
    /// Rounds in the method's own sense (RaLU: judgements; format retries are not rounds).
    pub rounds: u32,
    pub format_failures: u32,
    /// All calls, retries and failed ones included.
    pub cost: Cost,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    Answered { answer: String },
    Failed { why: Failure },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize)]
#[serde(tag = "failure", rename_all = "snake_case")]
pub enum Failure {
    #[error("{what}, also after {retries} retries")]
    Format { what: String, retries: u32 },
    #[error("the dialogue has outgrown the model's context ({needed} of {limit} tokens)")]
    ContextFull { needed: usize, limit: usize },
    #[error("{what}")]
    Model { what: String },
    #[error("the program gave no answer: {what}")]
    Program { what: String },
}
