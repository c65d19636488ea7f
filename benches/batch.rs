//! Sequences together: 1 to 32 replies at the same time, against llama.cpp's server with as many
//! slots, on the same file and threads, in turn. Tokens a second are all generated tokens over the
//! wall time from the first request to the last answer, prompts read included on both sides.

mod measure;

use std::time::Instant;

use measure::peer::Peer;
use measure::{Subject, median, record, stop};
use serde_json::json;
use unsay::engine::{EngineOptions, Sampling, Tag};
use unsay::text::TokenId;

const PROMPT: usize = 64;
const PREDICT: usize = 64;
const ROUNDS: usize = 3;
const TOGETHER: [usize; 6] = [1, 2, 4, 8, 16, 32];

fn main() {
    let subject = measure::host(EngineOptions::default());
    let mut rows = Vec::new();
    let mut version = String::new();
    for together in TOGETHER {
        let mut peer = Peer::start(
            &measure::model_file(),
            measure::threads(),
            together,
            PROMPT + PREDICT + 16,
        );
        version.clone_from(&peer.version);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let prompts = prompts(&subject, together, round);
            let a = measure_ours(&subject, &prompts);
            let served = peer.serve(&prompts, PREDICT);
            let generated: f64 = served.requests.iter().map(|request| request[2]).sum();
            let b = generated / served.wall;
            // The first round warms both up.
            if round > 0 {
                println!("{together} together: {a:.1} against {b:.1} tokens/s");
                ours.push(a);
                theirs.push(b);
            }
        }
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        rows.push(json!({
            "together": together,
            "unsay": median(&ours),
            "llama.cpp": median(&theirs),
            "ratio": median(&ratios),
            "ratios": ratios,
        }));
    }
    let facts = json!({
        "unit": "generated tokens/s, all sequences",
        "rows": rows,
        "target": "3 with 8 and 16 together",
        "peer": version,
        "prompt_tokens": PROMPT,
        "generated_tokens": PREDICT,
        "rounds": ROUNDS,
    });
    record("batch", facts);
}

/// Prompts that differ from their first token on.
fn prompts(subject: &Subject, count: usize, round: usize) -> Vec<Vec<TokenId>> {
    let line = "A river runs past the old mill, and the miller counts the sacks of flour. ";
    let ids = subject.tokenizer.encode(&line.repeat(8)).unwrap_or_else(|e| stop(&e.to_string()));
    let first = |n: usize| TokenId((200 + 50 * count + 10 * round + n) as u32);
    (0..count).map(|n| [&[first(n)], &ids[n..n + PROMPT - 1]].concat()).collect()
}

fn measure_ours(subject: &Subject, prompts: &[Vec<TokenId>]) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    // Ends of text are not drawn, so that the length is the same.
    let bias = (0..3).map(|id| (TokenId(id), -1e9)).collect();
    let sampling = Sampling { max_tokens: PREDICT, bias, ..Sampling::default() };
    let tag = Tag::new("bench", 1);
    let run = async {
        let mut sessions = Vec::new();
        for prompt in prompts {
            let mut session = subject.engine.open(measure::MODEL, None).await?;
            session.append(prompt).await?;
            sessions.push(session);
        }
        let begun = Instant::now();
        let mut replies = Vec::new();
        for session in &mut sessions {
            replies.push(session.generate(&sampling, &tag).await?);
        }
        let mut generated = 0;
        for reply in replies {
            generated += reply.collect().await?.tokens.len();
        }
        Ok::<f64, unsay::engine::EngineError>(generated as f64 / begun.elapsed().as_secs_f64())
    };
    runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()))
}
