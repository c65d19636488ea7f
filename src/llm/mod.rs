//! What methods see of a language model: `Llm` and `Dialogue`, with the embedded engine and a
//! scripted model behind them; prompt templates; the trace's events. Uses `engine` and `text`.
//!
//! The interface asks nothing that a remote chat server could not answer; what one cannot do
//! (score, fork at no cost) it says in `Abilities`.

mod prompts;
mod trace;

pub use crate::engine::{Cost, FinishReason};
pub use crate::text::Role;
pub use prompts::Prompts;
pub use trace::{Event, SilentSink, Sink, Verdict};

use async_trait::async_trait;

/// A language model that holds dialogues.
#[async_trait]
pub trait Llm: Send + Sync {
    /// The model's name, as shown beside results.
    fn name(&self) -> &str;

    fn abilities(&self) -> Abilities;

    /// Opens an empty dialogue.
    async fn open(&self, opening: Opening) -> Result<Box<dyn Dialogue>, LlmError>;
}

/// What a model behind `Llm` can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Replies carry log-probabilities of their tokens.
    pub logprobs: bool,
    pub score: bool,
    /// A rewind or a fork keeps what was computed.
    pub keeps_cache: bool,
    /// Most tokens of a dialogue.
    pub context_length: usize,
}

/// What a dialogue is for. The random stream of its replies is hash(item, role, sample, attempt).
#[derive(Clone)]
pub struct Opening {
    pub system: Option<String>,
    /// Method as named in tables, e.g. `ralu`.
    pub method: String,
    /// The problem's id.
    pub item: String,
    /// What this dialogue does within the method, e.g. `program`, `judge`.
    pub role: String,
    /// Which of several samples of the same role.
    pub sample: u32,
    pub seed: u64,
    /// Where the dialogue reports what is said, heard and taken back.
    pub sink: std::sync::Arc<dyn Sink>,
}

/// A dialogue: messages, of which the last may be waiting for a reply.
#[async_trait]
pub trait Dialogue: Send {
    /// Adds a message. Nothing is computed until a reply is asked for.
    fn say(&mut self, role: Role, text: &str);

    /// The model's reply to what was said, which becomes the last message.
    async fn reply(&mut self, ask: &Ask) -> Result<Reply, LlmError>;

    /// The present end of the dialogue.
    fn mark(&self) -> DialogueMark;

    /// Takes back every message after the mark, and raises the attempt, so that asking again is a
    /// new draw. Answers with what was taken back.
    async fn rewind(&mut self, mark: DialogueMark) -> Result<TakenBack, LlmError>;

    /// A second dialogue with the same past; the two go on independently. Its sample number is
    /// `sample`, its replies' stream differs accordingly.
    async fn fork(&self, sample: u32) -> Result<Box<dyn Dialogue>, LlmError>;

    /// Log-probabilities of `text` as the reply to what was said; the dialogue stays as it is.
    async fn score(&mut self, text: &str) -> Result<Vec<ReplyToken>, LlmError>;

    /// The messages so far, as said and heard.
    fn messages(&self) -> Vec<(Role, String)>;

    /// What this dialogue has cost since it was opened or forked.
    fn cost(&self) -> Cost;
}

/// The end of a dialogue at some moment: how many messages it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialogueMark(pub(crate) usize);

/// What a rewind took back.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenBack {
    pub messages: Vec<(Role, String)>,
    /// Ids dropped from the live sequence.
    pub tokens: u64,
}

/// How a reply is asked for.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Ask {
    pub temperature: f32,
    pub top_k: usize,
    pub top_p: f32,
    pub min_p: f32,
    pub frequency_penalty: f32,
    pub presence_penalty: f32,
    pub max_tokens: usize,
    pub stop: Vec<String>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            max_tokens: 512,
            stop: Vec::new(),
        }
    }
}

/// A reply with what it cost.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Reply {
    pub text: String,
    /// The reply's tokens (the stop token is not among them).
    pub tokens: Vec<ReplyToken>,
    pub finish: FinishReason,
    pub cost: Cost,
}

/// One token of a reply.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ReplyToken {
    pub text: String,
    /// Natural logarithm, raw softmax; absent where the server gives none.
    pub logprob: Option<f32>,
    /// In nats.
    pub entropy: Option<f32>,
}

/// Why a dialogue could not go on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LlmError {
    #[error(
        "the dialogue has outgrown the context: {needed} tokens are needed and {model} holds {limit}; \
         shorten the question or choose a model with a longer context"
    )]
    ContextFull { model: String, needed: usize, limit: usize },
    #[error("the chat template of {model} refused the dialogue: {what}")]
    Template { model: String, what: String },
    #[error("{model} cannot {what}")]
    NotAble { model: String, what: &'static str },
    #[error("the engine stopped: {what}")]
    Engine { what: String },
    #[error("the scripted model has no reply left for turn {turn}")]
    ScriptOver { turn: usize },
}
