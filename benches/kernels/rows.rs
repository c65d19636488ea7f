//! What a row of logits costs: its statistics and the draw from it. And a job of the thread pool.

use serde_json::{Value, json};
use unsay::device::Ops;
use unsay::device::cpu::Cpu;
use unsay::engine::{ReplyCounts, Sampler, Sampling, Softmax};
use unsay::text::TokenId;

use crate::measure::stop;
use crate::seconds;

const VOCABULARY: usize = 49_152;
const ROUNDS: usize = 200;

/// Logits with the spread of a language model's: most far below a few.
fn logits() -> Vec<f32> {
    (0..VOCABULARY)
        .map(|i| {
            let u =
                ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f32 / (1 << 24) as f32;
            let v =
                ((i as u64).wrapping_mul(0xD1B5_4A32_D192_ED03) >> 40) as f32 / (1 << 24) as f32;
            // Two uniform numbers to one that is about normal.
            3.0 * (-2.0 * (u + 1e-7).ln()).sqrt() * (std::f32::consts::TAU * v).cos()
        })
        .collect()
}

pub fn measure(threads: usize) -> Value {
    let logits = logits();
    let mut facts = json!({ "unit": "microseconds, one thread", "vocabulary": VOCABULARY });
    let mut tell = |name: &str, (median, least): (f64, f64)| {
        println!("{name}: {:.1} us (least {:.1})", median * 1e6, least * 1e6);
        facts[name] = json!({ "median": median * 1e6, "least": least * 1e6 });
    };
    for top in [0, 5, 20] {
        let run = || {
            let softmax = Softmax::of(&logits).unwrap_or_else(|e| stop(&format!("{e:?}")));
            std::hint::black_box(softmax.stats(&logits, TokenId(77), top));
        };
        tell(&format!("statistics, top {top}"), seconds(ROUNDS, run));
    }
    let mut counts = ReplyCounts::new();
    (0..300).for_each(|id| *counts.entry(TokenId(id * 7)).or_default() += 1);
    let warm = Sampling { temperature: 0.7, ..Sampling::default() };
    for (name, sampling) in [
        ("draw, greedy", Sampling::default()),
        ("draw, temperature 0.7", warm.clone()),
        ("draw, 0.7 with penalties", Sampling { frequency_penalty: 0.2, ..warm.clone() }),
        ("draw, 0.7 with top-k 40", Sampling { top_k: 40, ..warm.clone() }),
        ("draw, 0.7 with top-p 0.95", Sampling { top_p: 0.95, ..warm }),
    ] {
        let (mut sampler, mut position) = (Sampler::default(), 0);
        let run = || {
            std::hint::black_box(sampler.draw(&logits, &sampling, &counts, position));
            position += 1;
        };
        tell(name, seconds(ROUNDS, run));
    }
    let cpu = Cpu::new(threads).unwrap_or_else(|e| stop(&e.to_string()));
    let job = || {
        (0..100).for_each(|_| {
            cpu.for_each(8, &|i| {
                std::hint::black_box(i);
            })
        })
    };
    let (median, least) = seconds(ROUNDS, job);
    tell("a job of 8 empty chunks, all threads", (median / 100.0, least / 100.0));
    facts
}
