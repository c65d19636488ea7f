//! Published methods, one place each, readable beside its paper. A method knows `llm`, `answer` and
//! `program`, and nothing of engines or devices.

mod cot;
mod direct;
mod pot;
pub mod ralu;
mod registry;
mod self_debug;
mod solving;
mod turn;

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use crate::answer::{Kind, Problem};
use crate::llm::{Cost, Llm, LlmError, PromptError, Sink};
use crate::program::sandbox;

pub use cot::Cot;
pub use direct::Direct;
pub use pot::Pot;
pub use ralu::Ralu;
pub use registry::{MethodError, MethodInfo, OptionInfo, by_name, list};
pub use self_debug::{SelfDebug, SelfDebugOptions};

/// A way of solving problems with a language model.
#[async_trait]
pub trait Method: Send + Sync {
    /// As in tables: the paper's name, options of ours in brackets.
    fn name(&self) -> String;

    /// Whether it can answer problems of a kind. One that cannot is refused before a run begins.
    fn solves(&self, kind: Kind) -> bool {
        kind != Kind::Text
    }

    /// Solves one problem. Says in events what happens, `Began` and `Answered` or `Failed` included.
    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome;
}

/// Where programs that a model wrote are run: the sandbox, and in tests of methods a script.
#[async_trait]
pub trait Interpreter: Send + Sync {
    /// Runs a program to its end or to a limit. `answer` names the variable whose value is wanted.
    /// An error says that the program could not be run at all.
    async fn run(&self, source: &str, answer: &str) -> Result<sandbox::Run, String>;
}

#[async_trait]
impl Interpreter for sandbox::Sandbox {
    async fn run(&self, source: &str, answer: &str) -> Result<sandbox::Run, String> {
        let program = sandbox::Program::with_answer(source, answer);
        let run = sandbox::Sandbox::run(self, &program, &sandbox::Limits::default()).await;
        run.map_err(|error| error.to_string())
    }
}

/// What a method works with.
#[derive(Clone)]
pub struct Context {
    pub llm: Arc<dyn Llm>,
    pub sandbox: Arc<dyn Interpreter>,
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
    #[serde(flatten)]
    pub status: Status,
    /// The last program, where the method writes one.
    pub program: Option<String>,
    /// Rounds in the method's own sense (RaLU: judgements; format retries are not rounds).
    pub rounds: u32,
    /// Replies that did not keep the form, retried ones included.
    pub format_failures: u32,
    /// What a judge said of the first program, where the method has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<Judged>,
    /// All calls, retries and failed ones included.
    pub cost: Cost,
}

/// A program and what its own judge said of it, before anything was corrected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// `None` where steps in words were judged.
    pub first_program: Option<String>,
    pub units: u32,
    /// Units whose first judgement was WRONG.
    pub wrong_units: u32,
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
    #[error("the reply did not keep the form, also after {retries} retries: {what}")]
    Format { what: String, retries: u32 },
    #[error("the dialogue has outgrown the model's context ({needed} of {limit} tokens)")]
    ContextFull { needed: usize, limit: usize },
    #[error("{what}")]
    Model { what: String },
    #[error("the program gave no answer: {what}")]
    Program { what: String },
    /// Nothing that a model wrote is run outside the sandbox, so nothing is run.
    #[error("programs cannot be run here: {what}")]
    Sandbox { what: String },
    #[error("{what}")]
    Prompt { what: String },
    /// The method makes a value or a program, and the problem wants another kind of answer.
    #[error("the method makes a value or a program, and the reply itself is wanted")]
    Unfit,
}

impl From<LlmError> for Failure {
    fn from(error: LlmError) -> Self {
        match error {
            LlmError::ContextFull { needed, limit, .. } => Self::ContextFull { needed, limit },
            other => Self::Model { what: other.to_string() },
        }
    }
}

impl From<PromptError> for Failure {
    fn from(error: PromptError) -> Self {
        Self::Prompt { what: error.to_string() }
    }
}
