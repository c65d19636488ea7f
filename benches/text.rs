//! A text of 3,000 tokens: its perplexity beside llama.cpp's, and, by hand with `text scalar`, its
//! log-probabilities by the plain form of the kernels, which must be the same to the bit.
//!
//! The text is this repository's own ARCHITECTURE.md.

mod measure;

use std::path::Path;
use std::time::Instant;

use measure::peer::Peer;
use measure::{record, stop};
use serde_json::json;
use unsay::device::cpu::{Cpu, Tier};
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::engine::{EngineError, EngineOptions, Tag};
use unsay::model::{Batch, Decoder, Row, Transformer};
use unsay::store::{self, Cache};
use unsay::text::{TokenId, Tokenizer};

const TOKENS: usize = 3000;
/// Positions whose logits are asked for together.
const CHUNK: usize = 100;

fn main() {
    match std::env::args().skip(1).find(|a| !a.starts_with('-')).as_deref() {
        None => perplexity(),
        Some("scalar") => scalar(),
        Some(other) => stop(&format!("there is no part {other:?}; `scalar` is the only one")),
    }
}

fn ids(tokenizer: &Tokenizer) -> Vec<TokenId> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| stop(&e.to_string()));
    let mut ids = tokenizer.encode(&text).unwrap_or_else(|e| stop(&e.to_string()));
    if ids.len() < TOKENS {
        stop(&format!("{} has {} tokens; {TOKENS} are wanted", path.display(), ids.len()));
    }
    ids.truncate(TOKENS);
    ids
}

fn perplexity() {
    let subject = measure::host(EngineOptions::default());
    let ids = ids(&subject.tokenizer);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|e| stop(&e.to_string()));
    let run = async {
        let mut session = subject.engine.open(measure::MODEL, None).await?;
        session.append(&ids[..1]).await?;
        Ok::<_, EngineError>(session.score(&ids[1..], 0, &Tag::new("bench", 1)).await?.tokens)
    };
    let tokens = runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()));
    let ours: Vec<f64> = tokens.iter().map(|token| f64::from(token.logprob)).collect();
    let mut peer = Peer::start(&measure::model_file(), measure::threads(), 1, TOKENS + 16);
    let theirs = peer.logprobs(&ids);
    let both: Vec<(f64, f64)> =
        ours.iter().zip(&theirs).filter_map(|(a, b)| Some((*a, (*b)?))).collect();
    let mean =
        |pick: fn(&(f64, f64)) -> f64| both.iter().map(pick).sum::<f64>() / both.len() as f64;
    let (a, b) = ((-mean(|p| p.0)).exp(), (-mean(|p| p.1)).exp());
    let apart = mean(|p| (p.0 - p.1).abs());
    println!(
        "perplexity {a:.4} against {b:.4} over {} positions, {:+.3} %; log-probabilities {apart:.4} \
         apart on average",
        both.len(),
        100.0 * (a / b - 1.0)
    );
    let facts = json!({
        "unit": "perplexity", "unsay": a, "llama.cpp": b, "ratio": a / b,
        "target": "within 0.5 %", "positions": both.len(), "of": ids.len() - 1,
        "mean_difference_of_logprobs": apart, "peer": peer.version,
    });
    record("perplexity", facts);
}

fn scalar() {
    let cache = Cache::locate().unwrap_or_else(|e| stop(&e.to_string()));
    let files = store::open(measure::MODEL, &cache).unwrap_or_else(|e| stop(&e.to_string()));
    let tokenizer = Tokenizer::of_model(&files).unwrap_or_else(|e| stop(&e.to_string()));
    let ids = ids(&tokenizer);
    let run = |tier: Tier| {
        let begun = Instant::now();
        let cpu = Cpu::with_tier(measure::threads(), tier).unwrap_or_else(|e| stop(&e.to_string()));
        let model = Transformer::load(cpu, &files, KvType::F16, TOKENS.div_ceil(16));
        let logits = read(&mut model.unwrap_or_else(|e| stop(&e.to_string())), &ids);
        println!("{}: {:.0} s", tier.name(), begun.elapsed().as_secs_f64());
        logits
    };
    let forms = Tier::available();
    let of_each: Vec<_> = forms.iter().map(|&tier| run(tier)).collect();
    let plain = &of_each[0];
    let differ = |rows: &Vec<_>| rows.iter().zip(plain).filter(|(a, b)| a != b).count();
    let different: usize = of_each.iter().map(differ).sum();
    println!(
        "{different} of {} rows of logits differ in some bit",
        plain.len() * (forms.len() - 1)
    );
    let facts = json!({
        "forms": forms.iter().map(|tier| tier.name()).collect::<Vec<_>>(),
        "rows_of_logits": plain.len(),
        "rows_that_differ": different,
    });
    record("scalar", facts);
    if different > 0 {
        stop("the forms of the kernels do not agree");
    }
}

/// Of every position: the bits of all its logits, hashed, and the log-probability of the next id.
fn read(model: &mut dyn Decoder, ids: &[TokenId]) -> Vec<(u64, u64)> {
    let pages: Vec<PageId> = (0..ids.len().div_ceil(16) as u32).map(PageId).collect();
    let mut logits = vec![0.0; CHUNK * model.vocab_size()];
    let mut all = Vec::new();
    for from in (0..ids.len()).step_by(CHUNK) {
        let positions = from..(from + CHUNK).min(ids.len());
        let row = |position| Row { slot: 0, position, token: ids[position], adapter: None };
        let rows: Vec<Row> = positions.clone().map(row).collect();
        let bad = model.forward(&Batch { rows: &rows, tables: &[&pages] });
        if !bad.unwrap_or_else(|e| stop(&e.to_string())).is_empty() {
            stop("a row is not finite");
        }
        let place =
            |position: usize| HiddenAt { page: pages[position / 16], offset: position % 16 };
        let places: Vec<HiddenAt> = positions.clone().map(place).collect();
        let out = &mut logits[..places.len() * model.vocab_size()];
        model.logits(&places, out).unwrap_or_else(|e| stop(&e.to_string()));
        for (position, row) in positions.zip(out.chunks_exact(model.vocab_size())) {
            let next = ids.get(position + 1).map_or(0.0, |next| log_probability(row, *next));
            all.push((hash(row), next.to_bits()));
        }
    }
    all
}

fn log_probability(row: &[f32], id: TokenId) -> f64 {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
    f64::from(row[id.index()] - most) - sum.ln()
}

/// FNV-1a over the bits.
fn hash(row: &[f32]) -> u64 {
    row.iter().fold(0xCBF2_9CE4_8422_2325, |hash, x| {
        (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0000_0100_0000_01B3)
    })
}
