//! Other formats and larger shapes beside llama.cpp: the default model in Q4_0 and Q8_0, and random
//! weights of a 1B and a 7B shape in the mixture Q4_K_M. The same file, the same threads, in turn.
//!
//! `formats NAME…` measures some of them alone; only a whole run is recorded.

mod measure;

use std::path::PathBuf;

use candle_core::quantized::GgmlDType;
use measure::models::{self, ONE_BILLION, SEVEN_BILLION};
use measure::peer::Peer;
use measure::speed::{self, Work};
use serde_json::{Value, json};
use unsay::engine::EngineOptions;

struct Subject {
    name: &'static str,
    file: fn() -> PathBuf,
    work: Work,
    /// Sequences together, and how much of each.
    together: &'static [(usize, Work)],
    /// Targets of prefill, decode, and sequences together.
    targets: [Option<f64>; 3],
}

const SHORT: Work = Work { prompt: 64, predict: 64, rounds: 3 };
const WHOLE: Work = Work { prompt: 512, predict: 128, rounds: 5 };
const TARGETS: [Option<f64>; 3] = [Some(1.8), Some(1.3), Some(2.0)];

const SUBJECTS: [Subject; 4] = [
    Subject {
        name: "Q4_0",
        file: || models::requantised(GgmlDType::Q4_0),
        work: WHOLE,
        together: &[(8, SHORT), (16, SHORT)],
        targets: TARGETS,
    },
    Subject {
        name: "Q8_0",
        file: || models::requantised(GgmlDType::Q8_0),
        work: WHOLE,
        together: &[(8, SHORT), (16, SHORT)],
        targets: TARGETS,
    },
    Subject {
        name: "1B shape, Q4_K_M",
        file: || models::synthetic(&ONE_BILLION),
        work: Work { prompt: 256, predict: 32, rounds: 3 },
        together: &[(8, Work { prompt: 16, predict: 16, rounds: 2 })],
        targets: [None; 3],
    },
    Subject {
        name: "7B shape, Q4_K_M",
        file: || models::synthetic(&SEVEN_BILLION),
        work: Work { prompt: 64, predict: 16, rounds: 2 },
        together: &[],
        targets: [None; 3],
    },
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut all = json!({ "unit": "tokens/s", "threads": measure::threads() });
    for subject in &SUBJECTS {
        if wanted.is_empty() || wanted.iter().any(|name| subject.name.starts_with(name.as_str())) {
            println!("{}", subject.name);
            all[subject.name] = measure(subject);
        }
    }
    if wanted.is_empty() {
        measure::record("formats", all);
    }
}

fn measure(subject: &Subject) -> Value {
    let path = (subject.file)();
    let hosted = measure::host_file(&path, EngineOptions::default());
    let threads = measure::threads();
    let start = |count: usize, work: Work| {
        Peer::start(&path, threads, count, work.prompt + work.predict + 16)
    };
    let mut peer = start(1, subject.work);
    let (prefill, decode) = speed::alone(&hosted, &mut peer, subject.work);
    let mut facts = json!({
        "peer": peer.version,
        "prompt_tokens": subject.work.prompt,
        "generated_tokens": subject.work.predict,
        "prefill": prefill.facts(subject.targets[0]),
        "decode": decode.facts(subject.targets[1]),
        "load_seconds": { "unsay": hosted.load_seconds, "llama.cpp": peer.loaded_seconds },
    });
    drop(peer);
    for (count, work) in subject.together {
        let pairs = speed::together(&hosted, &mut start(*count, *work), *count, *work);
        facts[format!("{count} together")] = pairs.facts(subject.targets[2]);
    }
    for (what, pairs) in [("prefill", &facts["prefill"]), ("decode", &facts["decode"])] {
        println!("  {what}: {:.2} times llama.cpp", pairs["ratio"].as_f64().unwrap_or(f64::NAN));
    }
    facts
}
