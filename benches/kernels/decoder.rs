//! The whole decoder: steps of many sequences together, prefill, and a step beside other work.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{self, Batch, Decoder, LoadOptions, Row};
use unsay::store::{self, Cache};
use unsay::text::TokenId;

use crate::limits::Limits;
use crate::measure::{self, stop};
use crate::seconds;

const STEPS: usize = 40;
const PROMPT: usize = 512;

fn load(threads: usize) -> Box<dyn Decoder> {
    let cache = Cache::locate().unwrap_or_else(|e| stop(&e.to_string()));
    let files = store::open(measure::MODEL, &cache).unwrap_or_else(|e| stop(&e.to_string()));
    let load = LoadOptions { threads, kv: KvType::F16, ..LoadOptions::default() };
    model::load(&files, &load).unwrap_or_else(|e| stop(&e.to_string()))
}

/// Sequences that lie in the pages, each `depth` positions long.
struct Sequences {
    tables: Vec<Vec<PageId>>,
    depth: usize,
}

impl Sequences {
    fn fill(model: &mut dyn Decoder, count: usize, depth: usize) -> Self {
        let each = (depth + STEPS + 2).div_ceil(16);
        let pages = |slot: usize| (0..each).map(move |page| PageId((slot * each + page) as u32));
        let all = Self { tables: (0..count).map(|slot| pages(slot).collect()).collect(), depth };
        for slot in 0..count {
            let rows: Vec<Row> = (0..depth).map(|position| row(slot, position)).collect();
            all.forward(model, &rows);
        }
        all
    }

    fn forward(&self, model: &mut dyn Decoder, rows: &[Row]) {
        let tables: Vec<&[PageId]> = self.tables.iter().map(Vec::as_slice).collect();
        let batch = Batch { rows, tables: &tables };
        model.forward(&batch).unwrap_or_else(|e| stop(&e.to_string()));
    }

    /// One token for each sequence: forward pass and logits.
    fn step(&self, model: &mut dyn Decoder, position: usize, out: &mut [f32]) {
        let count = self.tables.len();
        let rows: Vec<Row> = (0..count).map(|slot| row(slot, position)).collect();
        self.forward(model, &rows);
        let place =
            |table: &Vec<PageId>| HiddenAt { page: table[position / 16], offset: position % 16 };
        let places: Vec<HiddenAt> = self.tables.iter().map(place).collect();
        model.logits(&places, out).unwrap_or_else(|e| stop(&e.to_string()));
    }

    /// Median and least seconds of a step.
    fn steps(&self, model: &mut dyn Decoder) -> (f64, f64) {
        let mut out = vec![0.0; self.tables.len() * model.vocab_size()];
        let mut position = self.depth;
        seconds(STEPS, || {
            self.step(model, position, &mut out);
            position += 1;
        })
    }
}

fn row(slot: usize, position: usize) -> Row {
    let token = TokenId(((7 + 31 * position + 101 * slot) % 49_000) as u32);
    Row { slot, position, token, adapter: None }
}

pub fn measure(threads: usize, limits: &Limits) -> Value {
    let mut model = load(threads);
    let model = model.as_mut();
    let mut facts = json!({ "unit": "tokens/s", "note": "forward pass and logits, no sampling" });
    let mut tell = |name: String, tokens: f64, (median, least): (f64, f64)| {
        println!("{name}: {:.1} tokens/s (best {:.1})", tokens / median, tokens / least);
        facts[name] = json!({ "median": tokens / median, "best": tokens / least });
    };
    for depth in [128, 512] {
        for count in [1, 2, 4, 8, 16] {
            let time = Sequences::fill(model, count, depth).steps(model);
            if count == 1 {
                let bytes = 98.4e6;
                let share = bytes / time.1 / 1e9 / limits.read_gb_s;
                println!("  {:.1} GB/s of weights, {share:.2} of reading", bytes / time.1 / 1e9);
            }
            tell(format!("{count} sequences at {depth}"), count as f64, time);
        }
    }
    let prompt: Vec<Row> = (0..PROMPT).map(|position| row(0, position)).collect();
    let pages = Sequences::fill(model, 1, 1);
    let pages = Sequences { tables: vec![(0..40).map(PageId).collect()], depth: pages.depth };
    let time = seconds(7, || pages.forward(model, &prompt));
    let gmac = 106.2e6 * PROMPT as f64 / time.1 / 1e9;
    println!("  {gmac:.1} G multiply-adds/s, {:.2} of the peak", gmac / limits.int8_gmac_s);
    tell(format!("prefill of {PROMPT}"), PROMPT as f64, time);
    facts
}

/// Steps of 1 and 8 sequences alone, and with 1 and 2 other threads that never rest: the system gives
/// us about `threads / (threads + others)` of the machine.
pub fn beside_other_work(threads: usize) -> Value {
    let mut model = load(threads);
    let model = model.as_mut();
    let mut facts =
        json!({ "unit": "ms a step, median", "note": "others: threads that never rest" });
    for count in [1, 8] {
        let mut alone = f64::NAN;
        for others in [0, 1, 2, 4] {
            let rest = AtomicBool::new(false);
            let median = std::thread::scope(|scope| {
                for _ in 0..others {
                    scope.spawn(|| {
                        while !rest.load(Ordering::Relaxed) {
                            std::hint::black_box((0..1000).sum::<u64>());
                        }
                    });
                }
                let sequences = Sequences::fill(model, count, 128);
                let (median, _) = sequences.steps(model);
                rest.store(true, Ordering::Relaxed);
                median
            });
            if others == 0 {
                alone = median;
            }
            let share = (threads + others) as f64 / threads as f64;
            println!(
                "{count} sequences beside {others}: {:.2} ms, {:.2} times alone ({share:.2} would be \
                 its share)",
                median * 1e3,
                median / alone
            );
            facts[format!("{count} sequences, {others} others")] = json!(median * 1e3);
        }
    }
    facts
}
