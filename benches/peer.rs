//! Prefill and decode beside llama.cpp: the same file, the same threads, in turn; load time and
//! peak memory of both. Ratios are unsay / llama.cpp for speeds (above 1: unsay is faster).

mod measure;

use measure::peer::Peer;
use measure::record;
use measure::speed::{self, Pairs, Work};
use serde_json::json;
use unsay::engine::EngineOptions;

const WORK: Work = Work { prompt: 512, predict: 128, rounds: 5 };
/// Reading so many tokens, most of the work is attention over what was read.
const LONG: Work = Work { prompt: 4096, predict: 32, rounds: 1 };

fn main() {
    let subject = measure::host(EngineOptions::default());
    let start = |context| Peer::start(&measure::model_file(), measure::threads(), 1, context);
    let mut peer = start(1024);
    let (prefill, decode) = speed::alone(&subject, &mut peer, WORK);
    let version = peer.version.clone();
    let told = |work: Work, pairs: &Pairs, target: Option<f64>| {
        let mut facts = pairs.facts(target);
        for (name, value) in [
            ("unit", json!("tokens/s")),
            ("rounds", json!(work.rounds)),
            ("peer", json!(version)),
            ("prompt_tokens", json!(work.prompt)),
            ("generated_tokens", json!(work.predict)),
        ] {
            facts[name] = value;
        }
        facts
    };
    record("prefill", told(WORK, &prefill, Some(4.0)));
    record("decode", told(WORK, &decode, Some(1.8)));
    let loaded = json!({
        "unit": "s", "unsay": subject.load_seconds, "llama.cpp": peer.loaded_seconds,
        "ratio": subject.load_seconds / peer.loaded_seconds, "target": null, "peer": version,
        "note": "once each; llama.cpp's figure includes its warm-up pass and its server's start",
    });
    record("load", loaded);
    let (mine, its) = (measure::peak_memory("self"), peer.peak_memory());
    let memory = json!({
        "unit": "bytes of peak resident memory, the mapped file included", "unsay": mine,
        "llama.cpp": its, "ratio": mine as f64 / its as f64, "target": 1.2, "peer": version,
        "note": "the whole process; llama.cpp's holds a Python interpreter too",
    });
    record("memory", memory);
    drop(peer);
    let (prefill, decode) = speed::alone(&subject, &mut start(5120), LONG);
    let long = json!({
        "prefill": told(LONG, &prefill, None),
        "decode": told(LONG, &decode, None),
    });
    record("long", long);
}
