//! Prefill and decode beside llama.cpp: the same file, the same threads, in turn; load time and
//! peak memory of both. Ratios are unsay / llama.cpp for speeds (above 1: unsay is faster).
//!
//! Each round's prompt differs in its first token, so that nothing of it is cached.

mod measure;

use std::time::Instant;

use measure::peer::Peer;
use measure::{Subject, median, record, stop};
use serde_json::json;
use unsay::engine::{EngineOptions, Sampling, Tag};
use unsay::text::TokenId;

const PROMPT: usize = 512;
const PREDICT: usize = 128;
const ROUNDS: usize = 5;

/// Tokens per second.
#[derive(Clone, Copy)]
struct Speed {
    prefill: f64,
    decode: f64,
}

fn main() {
    let subject = measure::host(EngineOptions::default());
    let mut peer = Peer::start(&measure::model_file(), measure::threads(), 1, 1024);
    let prompt: Vec<TokenId> = prompt(&subject);
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for round in 0..=ROUNDS {
        // Nothing of an earlier round may be found in the prefix tree.
        let prompt: Vec<TokenId> = [&[TokenId(100 + round as u32)], &prompt[1..]].concat();
        let a = measure_ours(&subject, &prompt);
        let b = measure_theirs(&mut peer, &prompt);
        // The first round warms both up.
        if round == 0 {
            continue;
        }
        println!(
            "round {round}: prefill {:.1} against {:.1}, decode {:.1} against {:.1} tok/s",
            a.prefill, b.prefill, a.decode, b.decode
        );
        ours.push(a);
        theirs.push(b);
    }
    let facts = |pick: fn(&Speed) -> f64| {
        let a: Vec<f64> = ours.iter().map(pick).collect();
        let b: Vec<f64> = theirs.iter().map(pick).collect();
        let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
        json!({
            "unit": "tokens/s",
            "unsay": median(&a),
            "llama.cpp": median(&b),
            "ratio": median(&ratios),
            "ratios": ratios,
            "target": null,
            "rounds": ROUNDS,
            "peer": peer.version,
            "prompt_tokens": PROMPT,
            "generated_tokens": PREDICT,
        })
    };
    record("prefill", facts(|s| s.prefill));
    record("decode", facts(|s| s.decode));
    let loaded = json!({
        "unit": "s", "unsay": subject.load_seconds, "llama.cpp": peer.loaded_seconds,
        "ratio": subject.load_seconds / peer.loaded_seconds, "target": null, "peer": peer.version,
        "note": "once each; llama.cpp's figure includes its warm-up pass and its server's start",
    });
    record("load", loaded);
    let (mine, its) = (measure::peak_memory("self"), peer.peak_memory());
    let memory = json!({
        "unit": "bytes of peak resident memory, the mapped file included", "unsay": mine,
        "llama.cpp": its, "ratio": mine as f64 / its as f64, "target": null, "peer": peer.version,
        "note": "the whole process; llama.cpp's holds a Python interpreter too",
    });
    record("memory", memory);
}

/// Ids of ordinary English text, so that both sides do the same work.
fn prompt(subject: &Subject) -> Vec<TokenId> {
    let line = "A river runs past the old mill, and the miller counts the sacks of flour. ";
    let ids = subject.tokenizer.encode(&line.repeat(60)).unwrap_or_else(|e| stop(&e.to_string()));
    if ids.len() < PROMPT {
        stop("the prompt is too short");
    }
    ids[..PROMPT].to_vec()
}

fn measure_ours(subject: &Subject, prompt: &[TokenId]) -> Speed {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    // Ends of text are drawn but rarely greedily; the bias keeps the length the same.
    let bias = (0..3).map(|id| (TokenId(id), f32::NEG_INFINITY)).collect::<Vec<_>>();
    let bias: Vec<_> = bias.into_iter().map(|(id, _)| (id, -1e9)).collect();
    let one = Sampling { max_tokens: 1, bias: bias.clone(), ..Sampling::default() };
    let many = Sampling { max_tokens: PREDICT, bias, ..Sampling::default() };
    let tag = Tag::new("bench", 1);
    let run = async {
        let mut session = subject.engine.open(measure::MODEL, None).await?;
        session.append(prompt).await?;
        let begun = Instant::now();
        let first = session.generate(&one, &tag).await?.collect().await?;
        let prefill = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let rest = session.generate(&many, &tag).await?.collect().await?;
        let decode = begun.elapsed().as_secs_f64();
        assert_eq!((first.tokens.len(), rest.tokens.len()), (1, PREDICT));
        Ok::<Speed, unsay::engine::EngineError>(Speed {
            prefill: PROMPT as f64 / prefill,
            decode: PREDICT as f64 / decode,
        })
    };
    runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()))
}

fn measure_theirs(peer: &mut Peer, prompt: &[TokenId]) -> Speed {
    let served = peer.serve(&[prompt.to_vec()], PREDICT);
    let [read, reading, written, writing] = served.requests[0];
    Speed { prefill: read / reading, decode: written / writing }
}
