//! The forward pass against PyTorch's results, against the reference graph, and against itself: what
//! must not change an answer, bit for bit.

use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use unsay::device::cpu::{Cpu, Tier};
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{Batch, Decoder, LoadOptions, Row, Transformer};
use unsay::store::{ModelFiles, SafetensorsModel};
use unsay::text::TokenId;

const ORACLES: [&str; 11] = [
    "llama_gqa7",
    "llama_head80",
    "llama_headdim_apart",
    "llama_mha",
    "llama_tied",
    "llama_untied",
    "mistral",
    "qwen2_tied",
    "qwen2_untied",
    "qwen3_tied",
    "qwen3_untied",
];

fn oracle(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/oracle").join(name)
}

fn open_folder(folder: &Path) -> ModelFiles {
    ModelFiles::Safetensors(SafetensorsModel::open(folder).expect("the folder opens"))
}

/// What PyTorch computed for a model.
struct Expected {
    ids: Vec<u32>,
    positions: Vec<usize>,
    /// `[positions][vocab]`
    logits: Vec<Vec<f32>>,
}

fn expected(folder: &Path) -> Expected {
    let bytes = std::fs::read(folder.join("expected.safetensors")).expect("expected.safetensors");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let words = |name: &str| -> Vec<[u8; 4]> {
        file.tensor(name).expect(name).data().as_chunks::<4>().0.to_vec()
    };
    let logits: Vec<f32> = words("logits").into_iter().map(f32::from_le_bytes).collect();
    let positions: Vec<usize> =
        words("positions").into_iter().map(|b| u32::from_le_bytes(b) as usize).collect();
    let vocab = logits.len() / positions.len();
    Expected {
        ids: words("ids").into_iter().map(u32::from_le_bytes).collect(),
        logits: logits.chunks(vocab).map(<[f32]>::to_vec).collect(),
        positions,
    }
}

fn load(files: &ModelFiles, kv: KvType, pages: usize) -> Transformer<Cpu> {
    load_on(Cpu::new(2).expect("two threads"), files, kv, pages)
}

fn load_on(cpu: Cpu, files: &ModelFiles, kv: KvType, pages: usize) -> Transformer<Cpu> {
    Transformer::load(cpu, files, &LoadOptions { threads: 0, kv, pages }).expect("the model loads")
}

fn rows(slot: usize, from: usize, ids: &[u32]) -> Vec<Row> {
    ids.iter()
        .enumerate()
        .map(|(i, &id)| Row { slot, position: from + i, token: TokenId(id), adapter: None })
        .collect()
}

fn pages(from: u32, count: usize) -> Vec<PageId> {
    (from..from + count as u32).map(PageId).collect()
}

fn hidden_at(table: &[PageId], position: usize) -> HiddenAt {
    HiddenAt { page: table[position / 16], offset: position % 16 }
}

/// Logits at positions of a sequence that lies in `table`.
fn logits(model: &mut dyn Decoder, table: &[PageId], positions: &[usize]) -> Vec<Vec<f32>> {
    let wanted: Vec<HiddenAt> = positions.iter().map(|&p| hidden_at(table, p)).collect();
    let mut out = vec![0.0; wanted.len() * model.vocab_size()];
    model.logits(&wanted, &mut out).expect("logits");
    out.chunks(model.vocab_size()).map(<[f32]>::to_vec).collect()
}

/// The greatest difference as a share of the expected logits' range, over all positions.
fn worst_share(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
    let of_row = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        let (low, high) = expected
            .iter()
            .fold((f32::INFINITY, f32::NEG_INFINITY), |(l, h), &x| (l.min(x), h.max(x)));
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        worst / (high - low)
    };
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(of_row).fold(0.0, f32::max)
}

fn share_off_the_oracle(files: &ModelFiles, folder: &Path, kv: KvType) -> f32 {
    let expected = expected(folder);
    let table = pages(0, expected.ids.len().div_ceil(16));
    let mut model = load(files, kv, table.len());
    let batch = Batch { rows: &rows(0, 0, &expected.ids), tables: &[&table] };
    model.forward(&batch).expect("a forward pass");
    worst_share(&logits(&mut model, &table, &expected.positions), &expected.logits)
}

#[test]
fn logits_are_those_of_pytorch_at_every_option() {
    for name in ORACLES {
        let folder = oracle(name);
        let files = open_folder(&folder);
        let share = share_off_the_oracle(&files, &folder, KvType::F32);
        assert!(share < 1e-4, "{name}: {share} of the range with keys in f32");
        println!("{name}: {share:e}");
        let rounded = share_off_the_oracle(&files, &folder, KvType::F16);
        println!("{name}: f16 {rounded:e}");
        // f16 keeps 11 bits: one rounding of keys and of values is 5e-4 of their size at most.
        assert!(rounded < 2e-3, "{name}: {rounded} of the range with keys in f16");
    }
}
