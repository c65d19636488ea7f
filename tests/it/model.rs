//! The forward pass against PyTorch's results, against the reference graph, and against itself: what
//! must not change an answer, bit for bit; and what is refused.

mod adapters;
pub(crate) mod converted;
mod estimates;
mod invariance;
pub(crate) mod lora;
pub(crate) mod oracle;
mod quantise;
mod refusals;
pub(crate) mod tiny;

use crate::support;
use std::path::{Path, PathBuf};
use unsay::device::cpu::Cpu;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{Decoder, Row, Transformer};
use unsay::store::{ModelFiles, SafetensorsModel};
use unsay::text::TokenId;

/// The folder of a model with PyTorch's results.
pub(crate) fn oracle(name: &str) -> PathBuf {
    support::data("oracle").join(name)
}

pub(crate) fn open_folder(folder: &Path) -> ModelFiles {
    ModelFiles::Safetensors(SafetensorsModel::open(folder).expect("the folder opens"))
}

fn load(files: &ModelFiles, kv: KvType, pages: usize) -> Transformer<Cpu> {
    load_on(Cpu::new(2).expect("two threads"), files, kv, pages)
}

fn load_on(cpu: Cpu, files: &ModelFiles, kv: KvType, pages: usize) -> Transformer<Cpu> {
    Transformer::load(cpu, files, kv, pages).expect("the model loads")
}

/// Rows of consecutive ids of one slot.
fn rows(slot: usize, from: usize, ids: &[u32]) -> Vec<Row> {
    ids.iter()
        .enumerate()
        .map(|(i, &id)| Row { slot, position: from + i, token: TokenId(id), adapter: None })
        .collect()
}

/// Consecutive pages.
fn pages(from: u32, count: usize) -> Vec<PageId> {
    (from..from + count as u32).map(PageId).collect()
}

/// Logits at positions of a sequence that lies in `table`.
fn logits(model: &mut dyn Decoder, table: &[PageId], positions: &[usize]) -> Vec<Vec<f32>> {
    let at = |&p: &usize| HiddenAt { page: table[p / 16], offset: p % 16 };
    let wanted: Vec<HiddenAt> = positions.iter().map(at).collect();
    let mut out = vec![0.0; wanted.len() * model.vocab_size()];
    model.logits(&wanted, &mut out).expect("logits");
    out.chunks(model.vocab_size()).map(<[f32]>::to_vec).collect()
}
