//! The kernels of the processor beside the machine's own limits, measured in the same run: read
//! bandwidth of memory, and the peak of 8-bit multiply-adds from registers.

mod measure;

use std::time::Instant;

use measure::stop;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{self, Batch, Decoder, LoadOptions, Row};
use unsay::store::{self, Cache};
use unsay::text::TokenId;

fn seconds(mut work: impl FnMut(), rounds: usize) -> (f64, f64) {
    let mut all = Vec::new();
    work();
    for _ in 0..rounds {
        let begun = Instant::now();
        work();
        all.push(begun.elapsed().as_secs_f64());
    }
    (measure::median(&all), all.iter().copied().fold(f64::INFINITY, f64::min))
}

fn main() {
    let cache = Cache::locate().unwrap_or_else(|e| stop(&e.to_string()));
    let files = store::open(measure::MODEL, &cache).unwrap_or_else(|e| stop(&e.to_string()));
    let load = LoadOptions { threads: measure::threads(), kv: KvType::F16, pages: 1024, context: None };
    let mut model = model::load(&files, &load).unwrap_or_else(|e| stop(&e.to_string()));
    let model = model.as_mut();
    for depth in [128usize, 512] {
        for count in [1usize, 2, 4, 8, 16] {
            let pages_each = depth / 16 + 4;
            let tables: Vec<Vec<PageId>> = (0..count).map(|s| (0..pages_each).map(|p| PageId((s * pages_each + p) as u32)).collect()).collect();
            let tables: Vec<&[PageId]> = tables.iter().map(Vec::as_slice).collect();
            for slot in 0..count {
                let rows: Vec<Row> = (0..depth).map(|position| Row { slot, position, token: TokenId((7 + 31 * position + slot) as u32 % 49000), adapter: None }).collect();
                model.forward(&Batch { rows: &rows, tables: &tables }).unwrap_or_else(|e| stop(&e.to_string()));
            }
            let mut out = vec![0f32; count * model.vocab_size()];
            let mut position = depth;
            let mut heads = Vec::new();
            let (median, least) = seconds(|| {
                let rows: Vec<Row> = (0..count).map(|slot| Row { slot, position, token: TokenId(100 + slot as u32), adapter: None }).collect();
                model.forward(&Batch { rows: &rows, tables: &tables }).unwrap_or_else(|e| stop(&e.to_string()));
                let begun = Instant::now();
                let places: Vec<HiddenAt> = (0..count).map(|s| HiddenAt { page: tables[s][position / 16], offset: position % 16 }).collect();
                model.logits(&places, &mut out).unwrap_or_else(|e| stop(&e.to_string()));
                heads.push(begun.elapsed().as_secs_f64());
                position = depth + (position + 1 - depth) % 40;
            }, 30);
            println!("decode {count} at {depth}: {:.2} ms median, {:.2} least, {:.1} tok/s (best {:.1}), head {:.2} ms", median * 1e3, least * 1e3, count as f64 / median, count as f64 / least, measure::median(&heads) * 1e3);
        }
    }
    let table: Vec<PageId> = (0..40).map(PageId).collect();
    let rows: Vec<Row> = (0..512).map(|position| Row { slot: 0, position, token: TokenId((7 + 31 * position) as u32 % 49000), adapter: None }).collect();
    let (median, least) = seconds(|| {
        model.forward(&Batch { rows: &rows, tables: &[&table] }).unwrap_or_else(|e| stop(&e.to_string()));
    }, 5);
    println!("prefill 512: {:.1} tok/s (best {:.1})", 512.0 / median, 512.0 / least);
}
