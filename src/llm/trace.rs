//! The events of one problem, as they happen: what the trace file holds and the terminal shows.

use serde::{Deserialize, Serialize};

use super::{Cost, FinishReason, Role};

/// Where events go. Called from the task that solves; must not block for long.
pub trait Sink: Send + Sync {
    fn event(&self, event: &Event);
}

/// Forgets every event.
pub struct SilentSink;

impl Sink for SilentSink {
    fn event(&self, _: &Event) {}
}

/// A judge's verdict on a unit (grammar: ARCHITECTURE.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    Wrong,
    /// The reply did not keep the form; never a pass.
    Unparsed,
}

/// Something that happened while a problem was solved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A problem is begun.
    Began { item: String, method: String, model: String, question: String },
    /// A part of the method begins, e.g. `program`, `align`, `synthesis`.
    Stage { name: String },
    /// A message was added to a dialogue.
    Said { dialogue: String, role: Role, text: String },
    /// A piece of a reply, as it is generated.
    Piece { dialogue: String, text: String },
    /// A reply is whole.
    Replied {
        dialogue: String,
        text: String,
        /// What the model thought before.
        #[serde(skip_serializing_if = "Option::is_none")]
        thought: Option<String>,
        finish: FinishReason,
        confidence: Option<f64>,
        cost: Cost,
    },
    /// A reply did not keep the form that was asked for. `retry` retries had been made before it: it
    /// is asked for again, or given up where `retry` is the `limit`.
    FormatFailure { dialogue: String, what: String, retry: u32, limit: u32 },
    /// Messages were taken back from a live dialogue.
    Rewound { dialogue: String, messages: Vec<(Role, String)>, tokens: u64 },
    /// A program was read into units. Places that do not parse are among the units all the same.
    Units { source: String, units: Vec<String>, syntax_errors: Vec<String> },
    /// A candidate of a unit was judged. `unit` from 1, `candidate` from 1, `confidence` 0..=100.
    Judged {
        unit: usize,
        candidate: usize,
        verdict: Verdict,
        confidence: Option<f64>,
        text: String,
        fix: Option<String>,
    },
    /// A unit is settled: with which text, and how it came to be chosen.
    Settled { unit: usize, text: String, how: String },
    /// A program that a model wrote was run in the sandbox.
    Ran { outcome: String, answer: Option<String>, stdout: String },
    /// The problem ended with an answer.
    Answered { answer: String, cost: Cost, seconds: f64 },
    /// The problem ended without one.
    Failed { why: String, cost: Cost, seconds: f64 },
}
