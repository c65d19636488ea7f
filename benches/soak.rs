//! An hour of random requests on a small pool: after the warm-up, resident memory stays where it is.
//!
//! `UNSAY_SOAK_SECONDS` sets another time. Callers open, append, draw, score, fork, rewind, cancel and
//! close at random; the pool holds a few dialogues, so prefixes leave and calls are preempted all the
//! time. Memory is read every five seconds; the first tenth of the time is the warm-up.

mod measure;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use measure::{record, stop};
use serde_json::json;
use unsay::engine::{Engine, EngineError, EngineOptions, Sampling, Session, Tag};
use unsay::text::TokenId;

const CALLERS: u64 = 6;
const PAGES: u64 = 48;

fn main() {
    let seconds = std::env::var("UNSAY_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(3600));
    let subject = measure::host(EngineOptions::default());
    let page_bytes = subject.engine.models()[0].page_bytes as u64;
    drop(subject);
    let options =
        EngineOptions { page_memory: Some(PAGES * page_bytes), ..EngineOptions::default() };
    let subject = measure::host(options);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let begun = Instant::now();
    let mut resident = Vec::new();
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let engine = subject.engine.clone();
                tokio::spawn(async move {
                    let mut numbers = Numbers(caller + 1);
                    while begun.elapsed() < time {
                        match work(&engine, &mut numbers).await {
                            Ok(calls) => CALLS.fetch_add(calls, Ordering::Relaxed),
                            Err(error) => stop(&error.to_string()),
                        };
                    }
                })
            })
            .collect();
        while begun.elapsed() < time {
            tokio::time::sleep(Duration::from_secs(5).min(time / 20)).await;
            resident.push(measure::resident_memory());
        }
        for caller in callers {
            caller.await.unwrap_or_else(|e| stop(&e.to_string()));
        }
    });
    let warm = resident.len() / 10;
    let after = &resident[warm..];
    let (first, last) = (after[0], after[after.len() - 1]);
    let (least, most) =
        (after.iter().min().copied().unwrap_or(0), after.iter().max().copied().unwrap_or(0));
    let ledger = runtime.block_on(subject.engine.ledger()).unwrap_or_else(|e| stop(&e.to_string()));
    ledger.check().unwrap_or_else(|e| stop(&e.to_string()));
    let facts = json!({
        "seconds": begun.elapsed().as_secs_f64(),
        "calls": CALLS.load(Ordering::Relaxed),
        "tokens": ledger.total(),
        "unit": "bytes of resident memory",
        "after_warm_up": first, "least": least, "most": most, "at_the_end": last,
        "ratio": last as f64 / first as f64,
        "over_time": over_time(&resident),
        "target": "1.00: flat after the warm-up",
        "pages": PAGES,
    });
    println!("{facts:#}");
    record("soak", facts);
}

/// At most sixty of the readings, evenly taken, the last one among them.
fn over_time(resident: &[u64]) -> Vec<u64> {
    let step = resident.len().div_ceil(60).max(1);
    resident.iter().rev().step_by(step).rev().copied().collect()
}

/// One session with a few calls; answers with how many.
async fn work(engine: &Engine, numbers: &mut Numbers) -> Result<u64, EngineError> {
    let tag = Tag::new("soak", 1);
    let mut session = engine.open(measure::MODEL, None).await?;
    // Half of the prompts begin alike.
    let stem = if numbers.below(2) == 0 { 77 } else { numbers.next() };
    let mut ids = Numbers(stem).ids(20 + numbers.below(120));
    ids.extend(numbers.ids(5));
    session.append(&ids).await?;
    let calls = 1 + numbers.below(5);
    for _ in 0..calls {
        let sampling = Sampling {
            temperature: 0.8,
            seed: numbers.next(),
            max_tokens: 1 + numbers.below(40),
            ..Sampling::default()
        };
        match numbers.below(6) {
            0 => {
                session.score(&numbers.ids(10), 0, &tag).await?;
            }
            1 => {
                let mut reply = session.generate(&sampling, &tag).await?;
                reply.next().await;
            }
            2 => {
                let position = 1 + numbers.below(session.len().await? - 1);
                let mark = session.mark_at(position).await?;
                session.rewind(mark).await?;
                session.append(&numbers.ids(7)).await?;
            }
            3 => draw(&mut session.fork().await?, &sampling, &tag).await?,
            _ => draw(&mut session, &sampling, &tag).await?,
        }
    }
    Ok(calls as u64)
}

async fn draw(session: &mut Session, sampling: &Sampling, tag: &Tag) -> Result<(), EngineError> {
    session.generate(sampling, tag).await?.collect().await?;
    Ok(())
}

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn ids(&mut self, count: usize) -> Vec<TokenId> {
        (0..count).map(|_| TokenId(self.below(40_000) as u32)).collect()
    }
}
