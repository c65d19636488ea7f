//! Many items, several methods, several seeds: planned, run over one engine, kept in a journal, told in a
//! table. Uses `methods`, `journal` and `stats`.
//!
//! A run is a folder:
//! - `plan.json`: what was asked for, with the digests of model and prompts. It never changes.
//! - `journal.jsonl`: one line for each finished item, synced; the truth. All else is derived.
//! - `traces/`: the events of each item, one compressed file each.
//!
//! A line is keyed by what decides its content (`Key`). An item whose line is in the journal is never run
//! again; one that was under way when the process died leaves nothing and is run again, to the same ids.

mod plan;
mod record;
mod report;
mod run;
mod traces;

pub use plan::{MethodPlan, Plan, PlanError};
pub use record::{Ended, First, Key, Record, Verdict};
pub use report::{Comparison, Report, Row};
pub use run::{Judge, Judgement, Progress, Run, RunError, RunOptions, Told, Work};
pub use traces::{read_trace, trace_path};

/// Schema of plans and of the journal's lines.
pub const SCHEMA: u32 = 2;
