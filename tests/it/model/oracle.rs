//! Logits against PyTorch's, against the reference graph, and against llama.cpp's on the default
//! model.

use super::converted::gguf_of;
use super::tiny::{KINDS, Numbers, Tiny};
use super::{load, logits, open_folder, oracle, pages, rows};
use crate::support;
use safetensors::SafeTensors;
use std::path::Path;
use unsay::device::KvType;
use unsay::model::{Batch, Decoder, ModelSpec};
use unsay::reference::Reference;
use unsay::store::{Gguf, ModelFiles};
use unsay::text::TokenId;

pub const ORACLES: [&str; 14] = [
    "llama_gqa7",
    "llama_head80",
    "llama_headdim_apart",
    "llama_mha",
    "llama_rope_linear",
    "llama_rope_llama3",
    "llama_tied",
    "llama_untied",
    "mistral",
    "qwen2_tied",
    "qwen2_untied",
    "qwen2_yarn",
    "qwen3_tied",
    "qwen3_untied",
];

/// What PyTorch computed for a model.
pub struct Expected {
    pub ids: Vec<u32>,
    pub positions: Vec<usize>,
    /// `[positions][vocab]`
    pub logits: Vec<Vec<f32>>,
}

pub fn expected(folder: &Path) -> Expected {
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

/// The greatest difference as a share of the expected logits' range, over all rows.
pub fn worst_share(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f32 {
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

/// Logits of a sequence at positions, from a fresh model.
pub fn run(files: &ModelFiles, kv: KvType, ids: &[u32], positions: &[usize]) -> Vec<Vec<f32>> {
    let table = pages(0, ids.len().div_ceil(16));
    let mut model = load(files, kv, table.len());
    let batch = Batch { rows: &rows(0, 0, ids), tables: &[&table] };
    model.forward(&batch).expect("a forward pass");
    logits(&mut model, &table, positions)
}

#[test]
fn logits_are_those_of_pytorch_at_every_option_to_position_1500() {
    for name in ORACLES {
        let folder = oracle(name);
        let files = open_folder(&folder);
        let Expected { ids, positions, logits } = expected(&folder);
        let exact = worst_share(&run(&files, KvType::F32, &ids, &positions), &logits);
        assert!(exact < 1e-4, "{name}: {exact} of the range with keys in f32");
        // f16 keeps 11 bits, so keys and values are off by 5e-4 of their size at most, once each.
        let rounded = worst_share(&run(&files, KvType::F16, &ids, &positions), &logits);
        assert!(rounded < 3e-3, "{name}: {rounded} of the range with keys in f16");
        // bf16 keeps 8 bits: eight times as far off.
        let short = worst_share(&run(&files, KvType::Bf16, &ids, &positions), &logits);
        assert!(short < 8.0 * 3e-3, "{name}: {short} of the range with keys in bf16");
        println!(
            "{name}: {exact:.1e} of the range, {rounded:.1e} with keys in f16, {short:.1e} in bf16"
        );
    }
}

/// As [`run`] with keys in f32, the sequence cut into pieces of these lengths, over and over.
fn run_in_pieces(
    files: &ModelFiles,
    ids: &[u32],
    positions: &[usize],
    lengths: &[usize],
) -> Vec<Vec<f32>> {
    let table = pages(0, ids.len().div_ceil(16));
    let mut model = load(files, KvType::F32, table.len());
    let (mut from, mut lengths) = (0, lengths.iter().cycle());
    while from < ids.len() {
        let to = ids.len().min(from + lengths.next().expect("it never ends"));
        let rows = rows(0, from, &ids[from..to]);
        model.forward(&Batch { rows: &rows, tables: &[&table] }).expect("a forward pass");
        from = to;
    }
    logits(&mut model, &table, positions)
}

#[test]
fn prompts_read_in_pieces_or_token_by_token_give_pytorchs_logits_with_the_same_bits() {
    for name in ORACLES {
        let folder = oracle(name);
        let files = open_folder(&folder);
        let Expected { ids, positions, logits } = expected(&folder);
        let whole = run(&files, KvType::F32, &ids, &positions);
        for lengths in [&[1][..], &[37, 256, 5, 16, 301]] {
            let found = run_in_pieces(&files, &ids, &positions, lengths);
            let share = worst_share(&found, &logits);
            assert!(share < 1e-4, "{name}, pieces of {lengths:?}: {share} of the range");
            assert!(found == whole, "{name}, pieces of {lengths:?}: other bits");
        }
    }
}

#[test]
fn gguf_files_of_every_family_give_pytorchs_logits() {
    for name in ORACLES {
        let folder = oracle(name);
        let files = gguf_of(&folder);
        let Expected { ids, positions, logits } = expected(&folder);
        assert!(positions.contains(&511), "{name}: a position after which wrong pairs show");
        let share = worst_share(&run(&files, KvType::F32, &ids, &positions), &logits);
        assert!(share < 1e-4, "{name}: {share} of the range");
        let all = reference_logits(&files, &ids);
        let found: Vec<Vec<f32>> = positions.iter().map(|&p| all[p].clone()).collect();
        let reference = worst_share(&found, &logits);
        assert!(reference < 1e-4, "{name}: {reference} of the range by the reference graph");
        println!("{name}: {share:.1e} of the range, the reference graph {reference:.1e}");
    }
}

#[test]
fn both_layouts_of_config_json_give_one_specification() {
    for name in ORACLES {
        let read = |file: &str| {
            let text = std::fs::read_to_string(oracle(name).join(file)).expect(file);
            let json = serde_json::from_str(&text).expect(file);
            ModelSpec::from_config(&json, !name.ends_with("_tied")).expect(file)
        };
        assert_eq!(read("config.json"), read("config.legacy.json"), "{name}");
    }
}

pub fn reference_logits(files: &ModelFiles, ids: &[u32]) -> Vec<Vec<f32>> {
    let ids: Vec<TokenId> = ids.iter().map(|&id| TokenId(id)).collect();
    let reference = Reference::load(files).expect("the reference loads");
    reference.logits(&ids).expect("the reference runs").to_vec2().expect("f32 rows")
}

#[test]
fn the_reference_graph_gives_pytorchs_logits() {
    for name in ORACLES {
        let folder = oracle(name);
        let Expected { ids, positions, logits } = expected(&folder);
        let all = reference_logits(&open_folder(&folder), &ids);
        let found: Vec<Vec<f32>> = positions.iter().map(|&p| all[p].clone()).collect();
        let share = worst_share(&found, &logits);
        assert!(share < 1e-4, "{name}: {share} of the range");
        println!("{name}: {share:.1e} of the range");
    }
}

/// Small models of every option: family, share of heads, head width, tied or not.
fn random_models() -> Vec<Tiny> {
    let mut numbers = Numbers(7);
    let mut models = Vec::new();
    for architecture in ["llama", "qwen2", "qwen3"] {
        for (heads, kv_heads) in [(1, 1), (4, 4), (4, 2), (7, 1), (6, 3)] {
            let mut tiny = Tiny::new(architecture, KINDS[0]);
            tiny.head_dim = [6, 10, 16, 24, 64, 80][numbers.below(6)];
            (tiny.heads, tiny.kv_heads) = (heads, kv_heads);
            tiny.hidden = 20 + numbers.below(80);
            tiny.ffn = 9 + numbers.below(120);
            tiny.vocab = 5 + numbers.below(90);
            tiny.tied = numbers.below(2) == 0;
            tiny.seed = numbers.next();
            models.push(tiny);
        }
    }
    models
}

#[test]
fn random_models_agree_with_the_reference_graph() {
    for tiny in random_models() {
        let (files, ids) = (tiny.files(), Numbers(tiny.seed).ids(53, tiny.vocab));
        let all: Vec<usize> = (0..ids.len()).collect();
        let share =
            worst_share(&run(&files, KvType::F32, &ids, &all), &reference_logits(&files, &ids));
        assert!(share < 3e-5, "{share} of the range: {tiny:?}");
    }
}

#[test]
fn every_weight_type_agrees_with_the_reference_graph() {
    for kind in KINDS {
        for architecture in ["llama", "qwen3"] {
            let mut tiny = Tiny::new(architecture, kind);
            tiny.head_dim = tiny.head_dim.next_multiple_of(32);
            let (files, ids) = (tiny.files(), Numbers(3).ids(40, tiny.vocab));
            let all: Vec<usize> = (0..ids.len()).collect();
            let found = run(&files, KvType::F32, &ids, &all);
            let share = worst_share(&found, &reference_logits(&files, &ids));
            // Block formats round activations to 1/254 of a block's greatest number, in each of
            // seven products a layer and in the head.
            let bound = if kind.block_len() == 1 { 3e-5 } else { 3e-2 };
            assert!(share < bound, "{share} of the range: {tiny:?}");
            println!("{architecture} {kind:?}: {share:.1e} of the range");
        }
    }
}

#[derive(serde::Deserialize)]
struct Greedy {
    prompt_ids: Vec<u32>,
    steps: Vec<GreedyStep>,
}

#[derive(serde::Deserialize)]
struct GreedyStep {
    id: u32,
    top: Vec<(u32, f32)>,
}

/// Most that a log-probability may differ between the two programs.
const MOST_BETWEEN: f32 = 1.0;
/// Most by which another id may lead.
const NEAR_TIE: f32 = 0.45;

/// Differences of log-probabilities.
#[derive(Default)]
struct Differences {
    sum: f64,
    count: usize,
    worst: f32,
}

impl Differences {
    fn add(&mut self, a: f32, b: f32) {
        self.sum += f64::from((a - b).abs());
        self.count += 1;
        self.worst = self.worst.max((a - b).abs());
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

impl std::fmt::Display for Differences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.4} on average, {:.4} at most", self.mean(), self.worst)
    }
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|x| f64::from(x - greatest).exp()).sum();
    logits.iter().map(|x| x - greatest - total.ln() as f32).collect()
}

/// Both programs round activations to 8 bits in blocks of 32, and a rounding that falls the other way
/// early on moves everything behind it. So the judge is the reference graph, which rounds nothing:
/// this engine must be as near to it as llama.cpp is, and the two no farther apart than their two
/// distances allow.
#[test]
fn the_default_model_continues_as_in_llama_cpp() {
    let files = ModelFiles::Gguf(Gguf::open(&support::default_model()).expect("the model opens"));
    let mut model = load(&files, KvType::F32, 64);
    let text =
        std::fs::read_to_string(support::data("smollm2/greedy.jsonl")).expect("greedy.jsonl");
    let [mut ours, mut theirs, mut between] = [(); 3].map(|()| Differences::default());
    let mut gaps = Vec::new();
    for line in text.lines() {
        let greedy: Greedy = serde_json::from_str(line).expect("a line of greedy.jsonl");
        let mut ids = greedy.prompt_ids.clone();
        ids.extend(greedy.steps.iter().map(|step| step.id));
        let table = pages(0, ids.len().div_ceil(16));
        let batch = Batch { rows: &rows(0, 0, &ids), tables: &[&table] };
        model.forward(&batch).expect("a forward pass");
        let exact = reference_logits(&files, &ids);
        let first = greedy.prompt_ids.len() - 1;
        let at: Vec<usize> = (first..first + greedy.steps.len()).collect();
        let found = logits(&mut model, &table, &at);
        for ((step, found), position) in greedy.steps.iter().zip(found).zip(at) {
            let (found, exact) = (log_softmax(&found), log_softmax(&exact[position]));
            for &(id, llama) in &step.top {
                let (found, exact) = (found[id as usize], exact[id as usize]);
                ours.add(found, exact);
                theirs.add(llama, exact);
                between.add(found, llama);
            }
            let best = found.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if best > found[step.id as usize] {
                gaps.push(best - found[step.id as usize]);
            }
        }
    }
    let widest = gaps.iter().copied().fold(0.0, f32::max);
    println!("top-5 log-probabilities over {} numbers:", ours.count);
    println!("  this engine and the exact graph: {ours}");
    println!("  llama.cpp and the exact graph: {theirs}");
    println!("  this engine and llama.cpp: {between}");
    println!("  another id led {} times, by {widest:.4} at most", gaps.len());
    assert!(ours.mean() < 1.1 * theirs.mean(), "farther from the exact graph than llama.cpp");
    assert!(between.mean() < ours.mean() + theirs.mean());
    assert!(between.worst < MOST_BETWEEN, "a log-probability is off by {}", between.worst);
    assert!(widest < NEAR_TIE, "another id led by {widest}");
}
