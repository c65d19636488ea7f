//! Prints prefill and decode speed of a model on this machine's processor.
//!
//! `cargo run --release --example speed -- MODEL [THREADS]`; MODEL is a name, a .gguf file or a
//! folder. The figures are medians of three alternated rounds; other load on the machine lowers them.

use std::time::Instant;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{Batch, LoadOptions, Row, load};
use unsay::store::{Cache, open};
use unsay::text::TokenId;

const PROMPT: usize = 512;
const DECODED: usize = 64;

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "smollm2-135m-instruct".into());
    let threads = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let start = Instant::now();
    let files = open(&name, &Cache::locate()?)?;
    let table: Vec<PageId> = (0..((PROMPT + DECODED) / 16) as u32).map(PageId).collect();
    let options = LoadOptions { threads, kv: KvType::F16, pages: table.len() };
    let mut model = load(&files, &options)?;
    println!("{name}, {threads} threads, loaded in {:.2} s", start.elapsed().as_secs_f64());
    let vocab = model.vocab_size();
    let mut logits = vec![0.0; vocab];
    let mut run = |positions: std::ops::Range<usize>| -> anyhow::Result<f64> {
        let start = Instant::now();
        let rows: Vec<Row> = positions
            .map(|position| Row {
                slot: 0,
                position,
                token: TokenId((position * 37 % vocab) as u32),
                adapter: None,
            })
            .collect();
        model.forward(&Batch { rows: &rows, tables: &[&table] })?;
        let last = rows[rows.len() - 1].position;
        let wanted = HiddenAt { page: table[last / 16], offset: last % 16 };
        model.logits(&[wanted], &mut logits)?;
        Ok(start.elapsed().as_secs_f64())
    };
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        prefill.push(run(0..PROMPT)?);
        let start = Instant::now();
        for position in PROMPT..PROMPT + DECODED {
            run(position..position + 1)?;
        }
        decode.push(start.elapsed().as_secs_f64());
    }
    println!("prefill of {PROMPT}: {:.0} tokens/s", PROMPT as f64 / median(prefill));
    println!("decode of {DECODED} behind them: {:.0} tokens/s", DECODED as f64 / median(decode));
    Ok(())
}
