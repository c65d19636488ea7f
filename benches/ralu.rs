//! What RaLU costs on twenty questions of MultiArith and twenty of HumanEval+, and what the same dialogues
//! cost without a cache between calls: tokens by kind, seconds, and the waste ratio (appended rows
//! forwarded / distinct appended nodes; 1.00 is the least that any engine can do).
//!
//! The questions are not ours to ship: they are read from `../shared/data`, or `$UNSAY_SHARED/data`.
//! `UNSAY_QUESTIONS` sets another number of each. No accuracy is claimed from a model of this size; what
//! is measured is cost. Both engines answer each question in turn, and must answer it alike to the token.

mod measure;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use measure::{Subject, record, stop};
use serde_json::{Value, json};
use unsay::answer::{Kind, Problem};
use unsay::engine::{Cost, EngineOptions};
use unsay::llm::{Prompts, SilentSink};
use unsay::methods::{Context, Outcome, Status, by_name};
use unsay::program::sandbox::{Options, Sandbox};

fn main() {
    let count = std::env::var("UNSAY_QUESTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let [cached, uncached] = [true, false].map(Contestant::new);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    let mut sets = serde_json::Map::new();
    for (name, questions) in [("MultiArith", multiarith(count)), ("HumanEval+", human_eval(count))]
    {
        let Some(questions) = questions else {
            println!("skipped: {name} is not here (set UNSAY_SHARED to the folder that has it)");
            continue;
        };
        let mut sums = [Sum::default(), Sum::default()];
        for problem in &questions {
            let outcomes = [&cached, &uncached].map(|one| runtime.block_on(one.solve(problem)));
            let [with, without] = &outcomes;
            if (&with.0.status, with.0.cost.generated_tokens)
                != (&without.0.status, without.0.cost.generated_tokens)
            {
                stop(&format!("{}: the cache changed the answer", problem.id));
            }
            for (sum, (outcome, seconds)) in sums.iter_mut().zip(&outcomes) {
                sum.add(outcome, *seconds);
            }
            println!("{}: {}", problem.id, told(with, without));
        }
        let ledgers = [&cached, &uncached].map(|one| runtime.block_on(one.waste()));
        let [with, without] = &sums;
        sets.insert(
            name.to_owned(),
            json!({
                "questions": questions.len(),
                "answered": with.answered,
                "format_failures": with.format_failures,
                "cache": with.facts(),
                "no_cache": without.facts(),
                "computed_without_over_with":
                    without.tokens.computed_tokens as f64 / with.tokens.computed_tokens as f64,
                "seconds_without_over_with": without.seconds / with.seconds,
                "waste_so_far": ledgers[0],
                "waste_so_far_no_cache": ledgers[1],
            }),
        );
    }
    let facts = json!({
        "method": "ralu",
        "profile": if cfg!(debug_assertions) { "dev" } else { "bench" },
        "model": measure::MODEL,
        "sets": sets,
        "ratio_is": "waste: appended rows forwarded / distinct appended nodes",
        "target": 1.0,
    });
    println!("{facts:#}");
    record("ralu", facts);
}

/// The method on an engine with or without a cache between calls.
struct Contestant {
    subject: Subject,
    context: Context,
}

impl Contestant {
    fn new(keep_prefixes: bool) -> Self {
        let options =
            EngineOptions { measure_waste: true, keep_prefixes, ..EngineOptions::default() };
        let subject = measure::host(options);
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
        Self { subject, context }
    }

    async fn solve(&self, problem: &Problem) -> (Outcome, f64) {
        let method = by_name("ralu", &[]).unwrap_or_else(|e| stop(&e.to_string()));
        let begun = Instant::now();
        let outcome = method.solve(problem, &self.context).await;
        (outcome, begun.elapsed().as_secs_f64())
    }

    async fn waste(&self) -> Option<f64> {
        let ledger = self.subject.engine.ledger().await.unwrap_or_else(|e| stop(&e.to_string()));
        ledger.check().unwrap_or_else(|e| stop(&e.to_string()));
        ledger.models.first().and_then(|m| m.waste).and_then(|w| w.ratio())
    }
}

/// What a set cost.
#[derive(Default)]
struct Sum {
    tokens: Cost,
    seconds: f64,
    answered: usize,
    format_failures: u32,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome, seconds: f64) {
        self.tokens += outcome.cost;
        self.seconds += seconds;
        self.answered += usize::from(matches!(outcome.status, Status::Answered { .. }));
        self.format_failures += outcome.format_failures;
    }

    fn facts(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "seconds": self.seconds,
            "cached_share_of_prompt":
                self.tokens.cached_tokens as f64 / self.tokens.prompt_tokens as f64,
        })
    }
}

fn told((with, took): &(Outcome, f64), (without, took_without): &(Outcome, f64)) -> String {
    let ended = match &with.status {
        Status::Answered { .. } => "answered",
        Status::Failed { .. } => "failed",
    };
    format!(
        "{} prompt = {} cached + {} computed (without a cache: {} computed), {} generated, {took:.1} s \
         ({took_without:.1} s); {ended}",
        with.cost.prompt_tokens,
        with.cost.cached_tokens,
        with.cost.computed_tokens,
        without.cost.computed_tokens,
        with.cost.generated_tokens,
    )
}

fn data(path: &str) -> PathBuf {
    let shared = std::env::var_os("UNSAY_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    shared.join("data").join(path)
}

fn multiarith(count: usize) -> Option<Vec<Problem>> {
    let text = std::fs::read_to_string(data("multiarith/MultiArith.jsonl")).ok()?;
    let problem = |(i, line): (usize, &str)| {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|e| stop(&e.to_string()));
        Problem {
            id: format!("multiarith-{}", i + 1),
            question: field(&record, "sQuestion").trim().to_owned(),
            ..Problem::default()
        }
    };
    Some(text.lines().take(count).enumerate().map(problem).collect())
}

fn human_eval(count: usize) -> Option<Vec<Problem>> {
    let file = std::fs::File::open(data("humanevalplus/HumanEvalPlus-v0.1.10.jsonl.gz")).ok()?;
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap_or_else(|e| stop(&e.to_string()));
    let problem = |line: &str| {
        // The rows hold `Infinity` among their tests, which is no JSON; what is read here comes before.
        let text = |name: &str| {
            let key = format!("\"{name}\": ");
            let at = line.find(&key).unwrap_or_else(|| stop(&format!("no {name}"))) + key.len();
            let mut values = serde_json::Deserializer::from_str(&line[at..]).into_iter::<String>();
            values.next().and_then(Result::ok).unwrap_or_else(|| stop(&format!("no {name}")))
        };
        Problem {
            id: text("task_id"),
            question: text("prompt"),
            kind: Kind::Code,
            entry_point: Some(text("entry_point")),
            ..Problem::default()
        }
    };
    Some(text.lines().take(count).map(problem).collect())
}

fn field<'a>(record: &'a Value, name: &str) -> &'a str {
    record[name].as_str().unwrap_or_else(|| stop(&format!("no {name}")))
}
