//! Rewind and fork at 8,000 positions of the default model: what the handles take, what the engine
//! adds to the next step, and how many pages are copied.

mod measure;

use std::time::Instant;

use measure::{median, record, stop};
use serde_json::json;
use unsay::engine::{EngineError, EngineOptions, Sampling, Session, Tag};
use unsay::text::TokenId;

const POSITIONS: usize = 8000;
const TIMES: usize = 200;
const STEPS: usize = 15;

fn main() {
    let subject = measure::host(EngineOptions::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    let line = "A river runs past the old mill, and the miller counts the sacks of flour. ";
    let ids = subject.tokenizer.encode(&line.repeat(600)).unwrap_or_else(|e| stop(&e.to_string()));
    let run = async {
        let mut session = subject.engine.open(measure::MODEL, None).await?;
        session.append(&ids[..POSITIONS + 3]).await?;
        let begun = Instant::now();
        one_token(&mut session).await?;
        let read = begun.elapsed().as_secs_f64();
        // A page is partly filled there, so the next row of a fork needs a copy of it.
        let mark = session.mark_at(POSITIONS + 3).await?;
        let (mut forks, mut rewinds) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let begun = Instant::now();
            let mut fork = session.fork().await?;
            forks.push(begun.elapsed().as_secs_f64());
            fork.append(&ids[..5]).await?;
            let begun = Instant::now();
            fork.rewind(mark).await?;
            rewinds.push(begun.elapsed().as_secs_f64());
        }
        // One more row at the end of the same session, against one more row of a new fork.
        let (mut on, mut forked, mut copied) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..STEPS as u32 {
            session.rewind(mark).await?;
            session.append(&[TokenId(1000 + step), TokenId(7)]).await?;
            one_token(&mut session).await?;
            let begun = Instant::now();
            one_token(&mut session).await?;
            on.push(begun.elapsed().as_secs_f64());
            let before = copies(&subject).await?;
            let mut fork = session.fork().await?;
            fork.rewind(mark).await?;
            fork.append(&[TokenId(2000 + step)]).await?;
            let begun = Instant::now();
            one_token(&mut fork).await?;
            forked.push(begun.elapsed().as_secs_f64());
            copied.push((copies(&subject).await? - before) as f64);
        }
        let micro = |values: &[f64]| 1e6 * median(values);
        let facts = json!({
            "positions": POSITIONS,
            "unit": "microseconds, medians",
            "fork": micro(&forks),
            "rewind": micro(&rewinds),
            "fork_and_rewind": micro(&forks) + micro(&rewinds),
            "target": 50.0,
            "step_going_on": micro(&on),
            "step_of_a_new_fork": micro(&forked),
            "pages_copied": median(&copied),
            "page_bytes": subject.engine.models()[0].page_bytes,
            "prefill_seconds": read,
        });
        println!("{facts:#}");
        record("rewind", facts);
        Ok::<(), EngineError>(())
    };
    runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()));
}

async fn one_token(session: &mut Session) -> Result<(), EngineError> {
    let sampling = Sampling { max_tokens: 1, ..Sampling::default() };
    session.generate(&sampling, &Tag::new("bench", 1)).await?.collect().await?;
    Ok(())
}

async fn copies(subject: &measure::Subject) -> Result<u64, EngineError> {
    Ok(subject.engine.ledger().await?.models[0].copied_pages)
}
