//! Runs: lines of the journal a second beside the disk's own rate of small synced appends, 32 items in flight
//! against one, and grading a whole file of programs.
//!
//! The questions in flight are ours; answers are the default model's and stand for their cost alone.

mod measure;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use measure::{median, record, stop};
use serde_json::{Value, json};
use unsay::answer::{Kind, Problem, Scores, Verdict};
use unsay::engine::EngineOptions;
use unsay::journal::Journal;
use unsay::llm::{Prompts, SilentSink};
use unsay::methods::{Context, by_name};
use unsay::program::sandbox::{Options, Sandbox};
use unsay::runs::{Judge, Judgement, MethodPlan, Plan, Run, RunOptions, SCHEMA, Work};
use unsay::tasks;

const LINES: usize = 500;
const ROUNDS: usize = 5;
const ITEMS: usize = 32;
/// Tokens of a reply, so that no item's length decides.
const TOKENS: usize = 48;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|e| stop(&e.to_string()));
    let sandbox = sandbox();
    let facts = json!({
        "journal": journal(),
        "in_flight": runtime.block_on(in_flight(&sandbox)),
        "programs": runtime.block_on(programs(&sandbox)),
    });
    println!("{facts:#}");
    record("runs", facts);
}

/// Synced lines a second, alternated with bare appends of as many bytes to a file of the same folder.
fn journal() -> Value {
    let line = json!({
        "schema": SCHEMA, "task": "mine", "item": "mine-17", "method": "cot", "model_digest": "0".repeat(64),
        "prompts_digest": "0".repeat(64), "seed": 0, "sample": 0, "row": "cot", "status": "answered",
        "answer": "42", "verdict": "right", "rule": "exact", "rounds": 1, "format_failures": 0,
        "cost": {"prompt_tokens": 210, "cached_tokens": 180, "computed_tokens": 30, "generated_tokens": 96},
        "seconds": 1.25,
    });
    let bytes = line.to_string() + "\n";
    let (mut ours, mut disk) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // Beside the build's output, which lies on a disk; a folder of temporary files may lie in memory.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.unwrap_or_else(|e| stop(&e.to_string()));
        let (mut journal, _) = Journal::open::<Value>(&folder.path().join("journal.jsonl"))
            .unwrap_or_else(|e| stop(&e.to_string()));
        let begun = Instant::now();
        for _ in 0..LINES {
            journal.append(&line).unwrap_or_else(|e| stop(&e.to_string()));
        }
        ours.push(LINES as f64 / begun.elapsed().as_secs_f64());
        let bare = File::create(folder.path().join("bare"));
        let mut bare = bare.unwrap_or_else(|e| stop(&e.to_string()));
        let begun = Instant::now();
        for _ in 0..LINES {
            bare.write_all(bytes.as_bytes())
                .and_then(|()| bare.sync_data())
                .unwrap_or_else(|e| stop(&e.to_string()));
        }
        disk.push(LINES as f64 / begun.elapsed().as_secs_f64());
    }
    let ratios: Vec<f64> = ours.iter().zip(&disk).map(|(a, b)| a / b).collect();
    json!({
        "lines_per_second": median(&ours),
        "bare_synced_appends_per_second": median(&disk),
        "over_bare": median(&ratios),
    })
}

/// The same 32 items one after the other and all at once, on a fresh engine each, alternated.
async fn in_flight(sandbox: &Arc<Sandbox>) -> Value {
    let problems: Vec<Problem> = (0..ITEMS)
        .map(|n| Problem {
            id: format!("mine-{n}"),
            question: format!(
                "A market stall sells {} crates of pears in the morning and {} in the afternoon. Each crate holds \
                 {} pears. How many pears does it sell that day?",
                3 + n % 7,
                2 + n % 5,
                10 + n
            ),
            kind: Kind::Math,
            entry_point: None,
            public_checks: Vec::new(),
        })
        .collect();
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    let mut lines: Vec<Vec<String>> = Vec::new();
    for _ in 0..ROUNDS {
        for (at_once, seconds) in [(1, &mut alone), (ITEMS, &mut together)] {
            let (spent, answers) = one_run(&problems, at_once, sandbox).await;
            seconds.push(spent);
            lines.push(answers);
        }
    }
    if lines.windows(2).any(|pair| pair[0] != pair[1]) {
        stop("what ran beside an item changed its answer");
    }
    let ratios: Vec<f64> = alone.iter().zip(&together).map(|(a, b)| a / b).collect();
    json!({
        "items": ITEMS,
        "tokens_of_a_reply": TOKENS,
        "seconds_one_at_a_time": median(&alone),
        "seconds_all_at_once": median(&together),
        "one_over_all": median(&ratios),
        "answers": "equal in all runs",
    })
}

async fn one_run(
    problems: &[Problem],
    at_once: usize,
    sandbox: &Arc<Sandbox>,
) -> (f64, Vec<String>) {
    let subject = measure::host(EngineOptions::default());
    let llm = subject.host.llm(measure::MODEL).unwrap_or_else(|e| stop(&e.to_string()));
    let context = Context {
        llm: Arc::new(llm),
        sandbox: sandbox.clone(),
        prompts: Arc::new(Prompts::builtin().unwrap_or_else(|e| stop(&e.to_string()))),
        sink: Arc::new(SilentSink),
        seed: 0,
        sample: 0,
        temperature: None,
        max_tokens: Some(TOKENS),
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.unwrap_or_else(|e| stop(&e.to_string()));
    let plan = Plan {
        schema: SCHEMA,
        task: "jsonl".into(),
        data: "none".into(),
        data_digest: "0".into(),
        whole: problems.len(),
        items: problems.iter().map(|problem| problem.id.clone()).collect(),
        methods: MethodPlan::read("cot").into_iter().collect(),
        model: measure::MODEL.into(),
        model_digest: "0".into(),
        quantise: None,
        adapter: None,
        merge: false,
        thinking: None,
        thinking_budget: None,
        kv: "f16".into(),
        context: None,
        prompts_digest: "0".into(),
        prompts: None,
        seeds: vec![0],
        temperature: None,
        max_tokens: Some(TOKENS),
    };
    let mut run =
        Run::open(&folder.path().join("run"), plan).unwrap_or_else(|e| stop(&e.to_string()));
    let methods = [Arc::from(by_name("cot", &[]).unwrap_or_else(|e| stop(&e.to_string())))];
    let judge: Arc<dyn Judge> = Arc::new(Nobody);
    let work = Work { problems, methods: &methods, context: &context, judge: &judge };
    let options = RunOptions { at_once, traces: false };
    let engine = subject.engine.clone();
    let healthy = async move || engine.check().await.map_err(|error| error.to_string());
    let begun = Instant::now();
    let ended = run.go(&work, options, healthy, &mut |_| {}).await;
    let seconds = begun.elapsed().as_secs_f64();
    ended.unwrap_or_else(|e| stop(&e.to_string()));
    let answers = run.records().map(|record| format!("{:?}", record.ended)).collect();
    (seconds, answers)
}

/// Answers are compared by what runs they come from, not with what is right.
struct Nobody;

#[async_trait]
impl Judge for Nobody {
    async fn judge(&self, _: &Problem, _: &str) -> Result<Judgement, String> {
        let scores = Scores::new();
        Ok(Judgement { verdict: Verdict::Undecided, rule: "not judged".into(), scores })
    }
}

/// HumanEval+ as its file holds it, each problem's own solution graded on all tests.
async fn programs(sandbox: &Arc<Sandbox>) -> Value {
    let shared = std::env::var_os("UNSAY_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let Ok(loaded) = tasks::load("humanevalplus", Some(&shared.join("data"))) else {
        return json!(
            "skipped: HumanEval+ is not here (set UNSAY_SHARED to the folder that has it)"
        );
    };
    let mut seconds = Vec::new();
    let mut right = 0;
    for _ in 0..3 {
        let items = Arc::new(loaded.items.clone());
        let begun = Instant::now();
        let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let workers: Vec<_> = (0..measure::threads())
            .map(|_| {
                let (items, next, sandbox) =
                    (Arc::clone(&items), Arc::clone(&next), Arc::clone(sandbox));
                tokio::spawn(async move {
                    let mut right = 0;
                    while let Some(item) =
                        items.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    {
                        let unsay::tasks::Gold::Tests(tests) = &item.gold else { continue };
                        let judged = tasks::judge(item, &tests.reference, Some(&sandbox)).await;
                        let judged = judged.unwrap_or_else(|e| stop(&e.to_string()));
                        right += usize::from(judged.verdict == Verdict::Right);
                    }
                    right
                })
            })
            .collect();
        right = 0;
        for worker in workers {
            right += worker.await.unwrap_or_else(|e| stop(&e.to_string()));
        }
        seconds.push(begun.elapsed().as_secs_f64());
    }
    json!({
        "set": "humanevalplus",
        "programs": loaded.items.len(),
        "right": right,
        "seconds": median(&seconds),
        "workers": measure::threads(),
    })
}

fn sandbox() -> Arc<Sandbox> {
    let options =
        Options { child: PathBuf::from(env!("CARGO_BIN_EXE_unsay")), ..Options::default() };
    Arc::new(Sandbox::find(options).unwrap_or_else(|e| stop(&e.to_string())))
}
