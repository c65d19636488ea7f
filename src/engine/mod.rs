//! One thread per device owns the hosted models and all pages, and is spoken to by messages.
//! The handle is `Session`: append, generate, score, mark, rewind, fork. Uses `model`, `text` and
//! the ids of pages in `device`.
//!
//! - `session`, `generation`: the handles; `message`: what they say to the thread; `error`.
//! - `worker`: the thread's state and its messages; `request`: calls in flight; `step`: one step of
//!   all of them, whose rows `schedule` chooses; `log`: its decisions on paper, to run again.
//! - `hosted`: a model; `tree`: what is computed, by prefix; `pages`, `memory`: where it lies;
//!   `sequence`: ids and the way to what is computed of them.
//! - `sampler` on `philox`, `statistics`, `stops`: from logits to tokens.
//! - `plan`: the budget of memory over all models, before they are loaded.
//! - `ledger`, `waste` on `prefix`: what it cost, in exact counts.

mod error;
mod generation;
mod hosted;
mod ledger;
mod log;
mod memory;
mod message;
mod pages;
mod philox;
pub mod plan;
mod prefix;
mod request;
mod sampler;
mod schedule;
mod sequence;
mod session;
mod statistics;
mod step;
mod stops;
mod tree;
mod waste;
mod worker;

pub use error::EngineError;
pub use generation::{Finish, Generated, GeneratedToken, Generation, GenerationEvent, Stop};
pub use hosted::{Hosted, ModelInfo, PageUse, TokenBytes};
pub use ledger::{LedgerRow, LedgerSnapshot, ModelCounts, Tag};
pub use log::{ReplayError, Replayed, replay};
#[doc(hidden)]
pub use sampler::{ReplyCounts, Sampler};
pub use session::{Engine, Mark, Scored, Session};
#[doc(hidden)]
pub use statistics::{NotFinite, Softmax};
pub use waste::Waste;

use crate::text::TokenId;

/// How the engine works. The defaults are meant for everyday use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EngineOptions {
    /// Most rows that one step forwards for a model, those of replies and of prompts together.
    pub step_rows: usize,
    /// Most rows of prompts among them: replies in the making wait no longer than these take.
    pub prefill_rows: usize,
    /// Most calls of a model that take part in steps at a time; others wait in their order.
    pub max_sequences: usize,
    /// Bytes that the pages of all models may take together. None: each model may fill its arena.
    pub page_memory: Option<u64>,
    /// Whether what was computed stays known when its call ends. Without it every call computes its whole
    /// prompt again, as an engine without a cache between calls does: to see what the cache saves.
    #[serde(default = "yes")]
    pub keep_prefixes: bool,
    /// Keeps a set of all forwarded prefixes, for the waste ratio. It grows with every distinct
    /// token, so it is for measurements, not for servers.
    pub measure_waste: bool,
    /// Counts all pages and checks the ledger after every step; a mistake stops the engine. Slow.
    pub check_every_step: bool,
}

/// What logs without the option ran with.
fn yes() -> bool {
    true
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            step_rows: 256,
            prefill_rows: 128,
            max_sequences: 64,
            page_memory: None,
            keep_prefixes: true,
            measure_waste: false,
            check_every_step: false,
        }
    }
}

impl EngineOptions {
    fn check(&self) -> Result<(), EngineError> {
        let least = [
            ("step_rows", self.step_rows),
            ("prefill_rows", self.prefill_rows),
            ("max_sequences", self.max_sequences),
        ];
        match least.into_iter().find(|&(_, value)| value == 0) {
            None => Ok(()),
            Some((option, value)) => Err(EngineError::BadOption {
                option,
                value: value.to_string(),
                limit: "it must be at least 1",
            }),
        }
    }
}

/// On whose account a call goes, and how long it may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub tag: Tag,
    /// A reply that is not complete by then ends with what it has; a score with an error. Looked
    /// at between steps.
    pub deadline: Option<std::time::Instant>,
}

impl From<Tag> for Call {
    fn from(tag: Tag) -> Self {
        Self { tag, deadline: None }
    }
}

impl From<&Tag> for Call {
    fn from(tag: &Tag) -> Self {
        tag.clone().into()
    }
}

/// How the next tokens are drawn. Penalties count tokens of the current reply only.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// 0: no limit.
    pub top_k: usize,
    /// 1: no limit.
    pub top_p: f32,
    /// 0: no limit.
    pub min_p: f32,
    /// Subtracted once from every token already generated in this reply.
    pub presence_penalty: f32,
    /// Subtracted for each time the token was generated in this reply.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies negative logits of tokens generated in this reply; 1: none.
    pub repetition_penalty: f32,
    pub bias: Vec<(TokenId, f32)>,
    /// Beside the model's own.
    pub stop_ids: Vec<TokenId>,
    pub stop_strings: Vec<String>,
    pub max_tokens: usize,
    pub seed: u64,
    /// Opaque to the engine; `llm` makes it from (item, role, sample, attempt).
    pub stream: u64,
    /// How many of the most probable tokens each position's statistics name.
    pub top_logprobs: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            bias: Vec::new(),
            stop_ids: Vec::new(),
            stop_strings: Vec::new(),
            max_tokens: 512,
            seed: 0,
            stream: 0,
            top_logprobs: 0,
        }
    }
}

/// What the raw softmax (before temperature, penalties and bias) said of a token at its position.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct TokenStats {
    pub id: TokenId,
    /// Natural logarithm of the token's probability.
    pub logprob: f32,
    /// Entropy of the distribution, in nats.
    pub entropy: f32,
    /// Tokens with a higher logit, equals with a lower id among them: 0 is the most probable one.
    pub rank: u32,
    /// Mean log-probability over the whole vocabulary.
    pub mean_logprob: f32,
    /// The most probable tokens with their log-probabilities, best first; as many as were asked for.
    pub top: Vec<(TokenId, f32)>,
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    StopId,
    StopString,
    MaxTokens,
    ContextFull,
    Deadline,
    Cancelled,
}

/// What a call, a turn or a dialogue cost (the ledger's columns; equations in ARCHITECTURE.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cost {
    /// Length of what each call conditioned on, summed over calls. `prompt = cached + computed`, but
    /// for rows that a preempted call computed again.
    pub prompt_tokens: u64,
    pub cached_tokens: u64,
    /// Rows that went through a forward pass, those of generated tokens' first time left out.
    pub computed_tokens: u64,
    /// Part of `computed` that had been computed before.
    pub recomputed: Recomputed,
    /// Tokens that the model generated, a stop id and those cut off by a stop string included.
    pub generated_tokens: u64,
    /// Generated tokens whose rows went through a forward pass (the last one of a reply does so
    /// with the next call). The engine forwards computed + fed back + rejected rows, exactly.
    pub fed_back_tokens: u64,
    pub drafted_tokens: u64,
    pub accepted_tokens: u64,
    /// Ids that a template rewrite gave up.
    pub dropped_tokens: u64,
    /// Wall time inside the engine, in seconds.
    pub seconds: f64,
}

/// Rows that were computed although they had been before, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recomputed {
    /// The page was wanted for something else meanwhile.
    pub evicted: u64,
    /// The call itself gave up its place to an older one and came back.
    pub preempted: u64,
    /// Another row of the same pass is the same.
    pub in_flight: u64,
    /// Keys and values were there; a log-probability needed the hidden row, and those are not kept.
    pub hidden_not_kept: u64,
}

impl Recomputed {
    pub fn total(&self) -> u64 {
        self.evicted + self.preempted + self.in_flight + self.hidden_not_kept
    }
}

impl std::ops::AddAssign for Recomputed {
    fn add_assign(&mut self, other: Self) {
        self.evicted += other.evicted;
        self.preempted += other.preempted;
        self.in_flight += other.in_flight;
        self.hidden_not_kept += other.hidden_not_kept;
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.computed_tokens += other.computed_tokens;
        self.recomputed += other.recomputed;
        self.generated_tokens += other.generated_tokens;
        self.fed_back_tokens += other.fed_back_tokens;
        self.drafted_tokens += other.drafted_tokens;
        self.accepted_tokens += other.accepted_tokens;
        self.dropped_tokens += other.dropped_tokens;
        self.seconds += other.seconds;
    }
}
