//! Grading: answers a second on all cores, and the time of one, over the public pairs where they are
//! (`$UNSAY_SHARED`, or `shared` beside the crate) and over our own. The limit beside it is the one that the
//! grader is built for: 5 ms for 99 of 100 answers.

mod measure;

use std::path::{Path, PathBuf};
use std::time::Instant;

use measure::{median, record, stop, threads};
use serde_json::{Value, json};
use unsay::answer::{Equality, grade};

const ROUNDS: usize = 5;
const LIMIT_MS: f64 = 5.0;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = pairs(&root.join("tests/data/grading/pairs.jsonl"), &["answer"]);
    let shared =
        std::env::var_os("UNSAY_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let mut public = Vec::new();
    for file in [
        "math_equivalence/pairs.jsonl",
        "math500/conformance_gpt-3.5-16K.jsonl",
        "math500/conformance_gpt-4o-0806.jsonl",
        "gsm8k/conformance_gpt-3.5-16K.jsonl",
        "gsm8k/conformance_gpt-4o-0806.jsonl",
    ] {
        let path = shared.join("data").join(file);
        if path.is_file() {
            public.extend(pairs(&path, &["given", "pred", "boxed"]));
        }
    }
    let facts = json!({
        "threads": threads(),
        "limit_p99_ms": LIMIT_MS,
        "public": measured(&public),
        "own": measured(&own),
    });
    println!("{facts:#}");
    record("answers", facts);
}

/// The answers that a file has in these fields, each with its gold.
fn pairs(path: &Path, fields: &[&str]) -> Vec<(String, String)> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|e| stop(&format!("{}: {e}", path.display())));
    let mut pairs = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| stop(&e.to_string()));
        let answers = fields.iter().filter_map(|field| value[*field].as_str());
        let gold = value["gold"].as_str().unwrap_or_default();
        pairs.extend(answers.map(|answer| (answer.to_owned(), gold.to_owned())));
    }
    pairs
}

fn measured(pairs: &[(String, String)]) -> Value {
    if pairs.is_empty() {
        return Value::Null;
    }
    let mut micros: Vec<f64> = Vec::new();
    let mut decided = 0usize;
    for (answer, gold) in pairs {
        let begun = Instant::now();
        let graded = grade(answer, gold);
        micros.push(1e6 * begun.elapsed().as_secs_f64());
        decided += usize::from(graded.equality != Equality::Undecided);
    }
    micros.sort_by(f64::total_cmp);
    let quantile = |part: f64| micros[((micros.len() - 1) as f64 * part).round() as usize];
    let rates: Vec<f64> = (0..ROUNDS).map(|_| rate(pairs)).collect();
    json!({
        "pairs": pairs.len(),
        "decided": decided,
        "p50_us": quantile(0.50),
        "p99_us": quantile(0.99),
        "longest_us": quantile(1.0),
        "p99_of_limit": quantile(0.99) / (1e3 * LIMIT_MS),
        "answers_a_second": median(&rates),
    })
}

/// Answers a second, every thread grading them all from another place on.
fn rate(pairs: &[(String, String)]) -> f64 {
    let threads = threads();
    let passes = 200_000usize.div_ceil(pairs.len() * threads).max(1);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let start = thread * pairs.len() / threads;
                for _ in 0..passes {
                    for (answer, gold) in pairs[start..].iter().chain(&pairs[..start]) {
                        std::hint::black_box(grade(answer, gold));
                    }
                }
            });
        }
    });
    (passes * pairs.len() * threads) as f64 / begun.elapsed().as_secs_f64()
}
