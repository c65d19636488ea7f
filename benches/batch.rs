//! Sequences together: 1 to 32 replies at the same time, against llama.cpp's server with as many
//! slots, on the same file and threads, in turn. Tokens a second are all generated tokens over the
//! wall time from the first request to the last answer, prompts read included on both sides.

mod measure;

use measure::peer::Peer;
use measure::record;
use measure::speed::{self, Work};
use serde_json::json;
use unsay::engine::EngineOptions;

const WORK: Work = Work { prompt: 64, predict: 64, rounds: 3 };
const TOGETHER: [usize; 6] = [1, 2, 4, 8, 16, 32];

fn main() {
    let subject = measure::host(EngineOptions::default());
    let mut rows = Vec::new();
    let mut version = String::new();
    for count in TOGETHER {
        let context = WORK.prompt + WORK.predict + 16;
        let mut peer = Peer::start(&measure::model_file(), measure::threads(), count, context);
        version.clone_from(&peer.version);
        let pairs = speed::together(&subject, &mut peer, count, WORK);
        let mut row = pairs.facts((count == 8 || count == 16).then_some(3.0));
        row["together"] = json!(count);
        rows.push(row);
    }
    let facts = json!({
        "unit": "generated tokens/s, all sequences",
        "rows": rows,
        "peer": version,
        "prompt_tokens": WORK.prompt,
        "generated_tokens": WORK.predict,
        "rounds": WORK.rounds,
    });
    record("batch", facts);
}
