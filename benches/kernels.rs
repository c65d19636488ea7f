//! The kernels of the processor beside the machine's own limits, measured in the same run: read
//! bandwidth of memory, and the peak of 8-bit multiply-adds from registers.
//!
//! Everything runs several times in turn; medians are told, and the least time beside them, since
//! neighbours on the machine only ever add. `kernels SECTION…` runs some sections alone.

#[path = "kernels/decoder.rs"]
mod decoder;
#[path = "kernels/limits.rs"]
mod limits;
mod measure;
#[path = "kernels/products.rs"]
mod products;
#[path = "kernels/rows.rs"]
mod rows;

use std::time::Instant;

use serde_json::{Value, json};

/// Median and least seconds of `rounds` runs, after one that warms up.
pub fn seconds(rounds: usize, mut work: impl FnMut()) -> (f64, f64) {
    work();
    let all: Vec<f64> = (0..rounds)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64()
        })
        .collect();
    (measure::median(&all), all.iter().copied().fold(f64::INFINITY, f64::min))
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let threads = measure::threads();
    let limits = limits::measure(threads);
    println!(
        "limits: {:.1} GB/s read, {:.1} G multiply-adds/s of 8 bits from registers",
        limits.read_gb_s, limits.int8_gmac_s
    );
    let mut facts = json!({ "limits": limits.facts(), "threads": threads });
    let mut section = |name: &str, run: &dyn Fn() -> Value| {
        if is_wanted(name) {
            facts[name] = run();
        }
    };
    section("products", &|| products::measure(threads, &limits));
    section("rows", &|| rows::measure(threads));
    section("decoder", &|| decoder::measure(threads, &limits));
    section("busy", &|| decoder::beside_other_work(threads));
    if wanted.is_empty() {
        measure::record("kernels", facts);
    }
}
