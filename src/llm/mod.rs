//! What methods see of a language model: `Llm` and `Dialogue`, with the embedded engine and a
//! scripted model behind them; prompt templates; the trace's events. Uses `engine`, `text`, and to host
//! models `model`, `device` and `store`.
//!
//! The interface asks nothing that a remote chat server could not answer; what one cannot do
//! (score, fork at no cost) it says in `Abilities`.

mod embedded;
mod history;
mod host;
pub mod preset;
mod prompts;
mod scripted;
mod streams;
mod thinking;
mod trace;
mod writing;

pub use crate::engine::{Cost, FinishReason};
pub use crate::text::Role;
use crate::text::TokenId;
pub use embedded::Embedded;
pub use host::{Host, HostAdapter, HostError, HostModel, HostOptions, HostedModel, Hosting, host};
pub use prompts::{PromptError, Prompts};
pub use scripted::{Heard, Scripted, ScriptedReply};
pub use streams::StreamName;
pub use thinking::Thinking;
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

    /// Adds a reply that this model gave before, with the ids that it was generated as: what a model
    /// said is not encoded again from its text.
    fn say_reply(&mut self, reply: &Reply);

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
    /// Ids of the live sequence that lay after the mark.
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
    /// What was said, without what was thought before it.
    pub text: String,
    /// What the model thought, where it has tags for that and used them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<Thought>,
    /// The tokens of what was said (the stop token is not among them).
    pub tokens: Vec<ReplyToken>,
    /// The ids that the dialogue holds for this reply: those of the thought with its tags, of `tokens`,
    /// and of the text that a stop string left of a cut token. Empty where the server gives none.
    #[serde(skip)]
    pub ids: Vec<TokenId>,
    pub finish: FinishReason,
    pub cost: Cost,
}

impl Reply {
    /// How sure the model was of its words, 0..=100: the mean over the tokens of 100 times their
    /// probability, clamped and rounded to two decimals (RaLU, Eq. 4). `None` where the reply has no
    /// tokens or one of them has no log-probability.
    pub fn confidence(&self) -> Option<f64> {
        let percent = |lp: f64| (10_000.0 * lp.exp().clamp(0.0, 1.0)).round() / 100.0;
        self.mean_over_tokens(percent)
    }

    /// exp(−mean log-probability), 1 or more. `None` as for `confidence`.
    pub fn perplexity(&self) -> Option<f64> {
        self.mean_over_tokens(|lp| lp).map(|mean| (-mean).exp())
    }

    fn mean_over_tokens(&self, value: impl Fn(f64) -> f64) -> Option<f64> {
        let mut sum = 0.0;
        for token in &self.tokens {
            sum += value(f64::from(token.logprob.filter(|lp| !lp.is_nan())?));
        }
        (!self.tokens.is_empty()).then(|| sum / self.tokens.len() as f64)
    }
}

/// What a model thought before it answered.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Thought {
    /// Without the tags and the line ends at them.
    pub text: String,
    /// The tokens that the model generated, its tags among them.
    pub tokens: Vec<ReplyToken>,
    /// How many ids closed the block in the model's place since its budget was spent. They have no
    /// log-probabilities and are not among the tokens.
    pub forced: usize,
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
    #[error("the dialogue with {model} could not be written: {what}")]
    Rendering { model: String, what: String },
    #[error("{model} cannot {what}")]
    NotAble { model: String, what: &'static str },
    #[error("the engine stopped: {what}")]
    Engine { what: String },
    #[error("the dialogue cannot be rewound to a mark that was itself taken back")]
    StaleMark,
    #[error("the scripted model has no reply left for turn {turn}")]
    ScriptOver { turn: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(logprobs: &[Option<f32>]) -> Reply {
        let token = |&logprob| ReplyToken { text: "x".into(), logprob, entropy: None };
        Reply {
            text: "x".repeat(logprobs.len()),
            thought: None,
            tokens: logprobs.iter().map(token).collect(),
            ids: Vec::new(),
            finish: FinishReason::StopId,
            cost: Cost::default(),
        }
    }

    /// Worked by hand: (50.00 + 100.00 + 25.00) / 3 = 58.33….
    #[test]
    fn confidence_is_equation_four() {
        let logprobs = [Some(0.5f32.ln()), Some(0.0), Some(0.25f32.ln())];
        let confidence = reply(&logprobs).confidence().unwrap();
        assert_eq!(format!("{confidence:.2}"), "58.33");
        // The geometric mean of the inverse probabilities 2, 1 and 4 is 2.
        assert!((reply(&logprobs).perplexity().unwrap() - 2.0).abs() < 1e-6);
    }

    #[test]
    fn each_token_is_rounded_before_the_mean() {
        // 33.333… is 33.33 and 66.666… is 66.67: the mean is 50.00 only by rounding each.
        let thirds = [Some((1.0f32 / 3.0).ln()), Some((2.0f32 / 3.0).ln())];
        assert_eq!(reply(&thirds).confidence(), Some(50.0));
        let third = [Some((1.0f32 / 3.0).ln())];
        assert_eq!(reply(&third).confidence(), Some(33.33));
        assert_eq!(reply(&[Some(f32::NEG_INFINITY), Some(0.1)]).confidence(), Some(50.0));
    }

    #[test]
    fn what_is_missing_gives_no_confidence() {
        assert_eq!(reply(&[]).confidence(), None);
        assert_eq!(reply(&[Some(0.0), None]).confidence(), None);
        assert_eq!(reply(&[Some(f32::NAN)]).confidence(), None);
        assert_eq!(reply(&[]).perplexity(), None);
    }
}
