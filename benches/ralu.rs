//! What RaLU costs on ten questions: tokens by kind, seconds, and the waste ratio (appended rows
//! forwarded / distinct appended nodes; 1.00 is the least that any engine can do).
//!
//! The questions are the first ten of MultiArith, which is not ours to ship: its folder is
//! `../shared/data/multiarith`, or `$UNSAY_SHARED/data/multiarith`. No accuracy is claimed from a
//! model of this size; what is measured is cost.

mod measure;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use measure::{record, stop};
use serde_json::{Value, json};
use unsay::answer::Problem;
use unsay::engine::{Cost, EngineOptions};
use unsay::llm::{Prompts, SilentSink};
use unsay::methods::{Context, Status, by_name};
use unsay::program::sandbox::{Options, Sandbox};

const QUESTIONS: usize = 10;

fn main() {
    let Some(questions) = questions() else {
        println!("skipped: MultiArith is not here (set UNSAY_SHARED to the folder that has it)");
        return;
    };
    let subject = measure::host(EngineOptions { measure_waste: true, ..EngineOptions::default() });
    let llm = subject.host.llm(measure::MODEL).unwrap_or_else(|e| stop(&e.to_string()));
    let options =
        Options { child: PathBuf::from(env!("CARGO_BIN_EXE_unsay")), ..Options::default() };
    let sandbox = Sandbox::find(options).unwrap_or_else(|e| stop(&e.to_string()));
    let context = Context {
        llm: Arc::new(llm),
        sandbox: Arc::new(sandbox),
        prompts: Arc::new(Prompts::builtin().unwrap_or_else(|e| stop(&e.to_string()))),
        sink: Arc::new(SilentSink),
        seed: 0,
        sample: 0,
        temperature: None,
        max_tokens: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    let method = by_name("ralu", &[]).unwrap_or_else(|e| stop(&e.to_string()));
    let (mut total, mut seconds, mut answered, mut failures) = (Cost::default(), 0.0, 0, 0);
    for problem in &questions {
        let begun = Instant::now();
        let outcome = runtime.block_on(method.solve(problem, &context));
        let took = begun.elapsed().as_secs_f64();
        let ended = match &outcome.status {
            Status::Answered { answer } => {
                answered += 1;
                format!("answered {answer}")
            }
            Status::Failed { why } => format!("failed: {why}"),
        };
        let c = outcome.cost;
        println!(
            "{}: {took:.1} s, {} prompt = {} cached + {} computed, {} generated, {} rounds; {ended}",
            problem.id,
            c.prompt_tokens,
            c.cached_tokens,
            c.computed_tokens,
            c.generated_tokens,
            outcome.rounds
        );
        total += c;
        seconds += took;
        failures += outcome.format_failures;
    }
    let ledger = runtime.block_on(subject.engine.ledger()).unwrap_or_else(|e| stop(&e.to_string()));
    ledger.check().unwrap_or_else(|e| stop(&e.to_string()));
    let waste = ledger.models.first().and_then(|m| m.waste).and_then(|w| w.ratio());
    let facts = json!({
        "method": method.name(),
        "profile": if cfg!(debug_assertions) { "dev" } else { "bench" },
        "model": measure::MODEL,
        "data": "first 10 of 600 of MultiArith",
        "questions": QUESTIONS,
        "answered": answered,
        "format_failures": failures,
        "tokens": total,
        "seconds": seconds,
        "cached_share_of_prompt": total.cached_tokens as f64 / total.prompt_tokens as f64,
        "ratio": waste,
        "ratio_is": "waste: appended rows forwarded / distinct appended nodes",
        "target": 1.0,
    });
    record("ralu", facts);
}

fn questions() -> Option<Vec<Problem>> {
    let shared = std::env::var_os("UNSAY_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let text = std::fs::read_to_string(shared.join("data/multiarith/MultiArith.jsonl")).ok()?;
    let problem = |(i, line): (usize, &str)| {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|e| stop(&e.to_string()));
        let question = record["sQuestion"].as_str().unwrap_or_else(|| stop("no question"));
        Problem {
            id: format!("multiarith-{}", i + 1),
            question: question.trim().to_owned(),
            ..Problem::default()
        }
    };
    Some(text.lines().take(QUESTIONS).enumerate().map(problem).collect())
}
