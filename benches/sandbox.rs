//! The sandbox for programs: a trivial program on a new interpreter and on one that stands ready, and a
//! thousand of them, as many at a time as there are processors.

mod measure;

use std::time::{Duration, Instant};

use measure::{median, record, stop};
use serde_json::json;
use unsay::program::sandbox::{Limits, Options, Outcome, Program, Sandbox};

const ROUNDS: usize = 60;
const MANY: usize = 1000;

fn main() {
    // The sandbox's child is the `unsay` binary of the same build.
    let child = std::env::current_exe().ok().and_then(|path| {
        let binary = path.parent()?.parent()?.join("unsay");
        binary.is_file().then_some(binary)
    });
    let child = child.unwrap_or_else(|| stop("there is no `unsay` beside it; build that first"));
    let find = |standing| {
        let options = Options { child: child.clone(), standing, ..Options::default() };
        Sandbox::find(options).unwrap_or_else(|e| stop(&e.to_string()))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|e| stop(&e.to_string()));
    let (new, ready) = (find(0), find(1));
    let (mut cold, mut warm) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        one(&ready).await;
        for _ in 0..ROUNDS {
            cold.push(one(&new).await);
            // As long as a model takes to write a program, the next interpreter has to stand up.
            tokio::time::sleep(Duration::from_millis(300)).await;
            warm.push(one(&ready).await);
        }
    });
    let many = find(measure::threads());
    let begun = Instant::now();
    runtime.block_on(async {
        let runs: Vec<_> = (0..MANY)
            .map(|_| {
                let many = many.clone();
                tokio::spawn(async move { one(&many).await })
            })
            .collect();
        for run in runs {
            run.await.unwrap_or_else(|e| stop(&e.to_string()));
        }
    });
    let all = begun.elapsed().as_secs_f64();
    let ms = |times: &[f64]| {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        json!({ "median": 1e3 * median(times), "p90": 1e3 * sorted[sorted.len() * 9 / 10] })
    };
    let facts = json!({
        "unit": "ms a run of `ans = 6 * 7`",
        "new_interpreter": ms(&cold),
        "standing_ready": ms(&warm),
        "target": "15 ms, standing ready",
        "ratio": median(&warm) / median(&cold),
        "a_thousand": { "seconds": all, "runs_a_second": MANY as f64 / all, "at_a_time": measure::threads() },
    });
    println!("{facts:#}");
    record("sandbox", facts);
}

/// Seconds of one run.
async fn one(sandbox: &Sandbox) -> f64 {
    let program = Program::with_answer("ans = 6 * 7", "ans");
    let begun = Instant::now();
    let run =
        sandbox.run(&program, &Limits::default()).await.unwrap_or_else(|e| stop(&e.to_string()));
    if run.outcome != (Outcome::Finished { answer: Some("42".to_owned()) }) {
        stop(&format!("{:?}", run.outcome));
    }
    begun.elapsed().as_secs_f64()
}
