//! Small models with random weights, written as GGUF files: any family, any weight type.

use crate::support::GgufBuilder;
use std::path::PathBuf;
use unsay::store::{Gguf, ModelFiles, WeightType};

pub const KINDS: [WeightType; 13] = [
    WeightType::F32,
    WeightType::F16,
    WeightType::BF16,
    WeightType::Q4_0,
    WeightType::Q4_1,
    WeightType::Q5_0,
    WeightType::Q5_1,
    WeightType::Q8_0,
    WeightType::Q2_K,
    WeightType::Q3_K,
    WeightType::Q4_K,
    WeightType::Q5_K,
    WeightType::Q6_K,
];

/// Numbers that depend on nothing but the seed (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Even on -1..1.
    pub fn even(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn ids(&mut self, count: usize, vocab: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(vocab) as u32).collect()
    }
}

/// The options of a small model.
#[derive(Clone, Debug)]
pub struct Tiny {
    /// `llama`, `qwen2` or `qwen3`.
    pub architecture: &'static str,
    pub kind: WeightType,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ffn: usize,
    pub vocab: usize,
    pub tied: bool,
    pub seed: u64,
    /// A token whose embedding holds a number that does not belong there; its table is f32.
    pub poison: Option<(usize, f32)>,
}

impl Tiny {
    /// Grouped heads whose width is not `hidden / heads`, and a vocabulary that fills no panel.
    pub fn new(architecture: &'static str, kind: WeightType) -> Self {
        // Rows of the K types are whole blocks of 256: one, one and three of them.
        let (hidden, head_dim, ffn) =
            if kind.block_len() == 256 { (256, 64, 768) } else { (64, 24, 96) };
        Self {
            architecture,
            kind,
            layers: 2,
            hidden,
            heads: 4,
            kv_heads: 2,
            head_dim,
            ffn,
            vocab: 77,
            tied: false,
            seed: 1,
            poison: None,
        }
    }

    /// The file as a builder, to which a test may add.
    pub fn builder(&self) -> GgufBuilder {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut writer = Writer {
            file: GgufBuilder::default()
                .string("general.architecture", self.architecture)
                .u32(&key("block_count"), self.layers as u32)
                .u32(&key("context_length"), 1024)
                .u32(&key("embedding_length"), self.hidden as u32)
                .u32(&key("feed_forward_length"), self.ffn as u32)
                .u32(&key("attention.head_count"), self.heads as u32)
                .u32(&key("attention.head_count_kv"), self.kv_heads as u32)
                .u32(&key("attention.key_length"), self.head_dim as u32)
                .u32(&key("attention.value_length"), self.head_dim as u32)
                .raw(&key("rope.freq_base"), GgufBuilder::F32, &5000f32.to_le_bytes())
                .raw(
                    &key("attention.layer_norm_rms_epsilon"),
                    GgufBuilder::F32,
                    &1e-5f32.to_le_bytes(),
                ),
            numbers: Numbers(self.seed),
            kind: self.kind,
        };
        match self.poison {
            None => writer.matrix("token_embd.weight", self.vocab, self.hidden),
            Some((token, number)) => {
                let mut table = vec![0.5f32; self.vocab * self.hidden];
                table[token * self.hidden + 3] = number;
                let shape = [self.vocab as u64, self.hidden as u64];
                let bytes: Vec<u8> = table.into_iter().flat_map(f32::to_le_bytes).collect();
                writer.add("token_embd.weight", WeightType::F32, &shape, &bytes);
            }
        }
        for layer in 0..self.layers {
            let name = |tensor: &str| format!("blk.{layer}.{tensor}");
            writer.vector(&name("attn_norm.weight"), self.hidden, 1.0, 0.3);
            for (letter, outputs) in [("q", q), ("k", kv), ("v", kv)] {
                writer.matrix(&name(&format!("attn_{letter}.weight")), outputs, self.hidden);
                if self.architecture == "qwen2" {
                    writer.vector(&name(&format!("attn_{letter}.bias")), outputs, 0.0, 0.7);
                }
                if self.architecture == "qwen3" && letter != "v" {
                    let norm = name(&format!("attn_{letter}_norm.weight"));
                    writer.vector(&norm, self.head_dim, 1.0, 0.5);
                }
            }
            writer.matrix(&name("attn_output.weight"), self.hidden, q);
            writer.vector(&name("ffn_norm.weight"), self.hidden, 1.0, 0.3);
            writer.matrix(&name("ffn_gate.weight"), self.ffn, self.hidden);
            writer.matrix(&name("ffn_up.weight"), self.ffn, self.hidden);
            writer.matrix(&name("ffn_down.weight"), self.hidden, self.ffn);
        }
        writer.vector("output_norm.weight", self.hidden, 1.0, 0.3);
        if !self.tied {
            writer.matrix("output.weight", self.vocab, self.hidden);
        }
        writer.file
    }

    pub fn files(&self) -> ModelFiles {
        open(&self.builder())
    }
}

/// Writes a file and maps it; the mapping outlives the file's name.
pub fn open(builder: &GgufBuilder) -> ModelFiles {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("tiny.gguf");
    std::fs::write(&path, builder.build()).expect("the file is written");
    ModelFiles::Gguf(Gguf::open(&path).expect("the file opens"))
}

struct Writer {
    file: GgufBuilder,
    numbers: Numbers,
    kind: WeightType,
}

impl Writer {
    fn add(&mut self, name: &str, kind: WeightType, shape: &[u64], bytes: &[u8]) {
        self.file = std::mem::take(&mut self.file).tensor(name, code(kind), shape, bytes);
    }

    fn vector(&mut self, name: &str, len: usize, middle: f32, spread: f32) {
        let bytes: Vec<u8> =
            (0..len).flat_map(|_| (middle + spread * self.numbers.even()).to_le_bytes()).collect();
        self.add(name, WeightType::F32, &[len as u64], &bytes);
    }

    fn matrix(&mut self, name: &str, outputs: usize, inputs: usize) {
        let reach = 1.7 / (inputs as f32).sqrt();
        let count = outputs * inputs / self.kind.block_len();
        let bytes: Vec<u8> = (0..count).flat_map(|_| self.block(reach)).collect();
        self.add(name, self.kind, &[outputs as u64, inputs as u64], &bytes);
    }

    /// One block of weights on about `-reach..reach`.
    fn block(&mut self, reach: f32) -> Vec<u8> {
        let half = |x: f32| half::f16::from_f32(x).to_le_bytes();
        let scale = reach * (0.75 + 0.25 * self.numbers.even());
        let heads = match self.kind {
            WeightType::F32 => return (reach * self.numbers.even()).to_le_bytes().to_vec(),
            WeightType::F16 => return half(reach * self.numbers.even()).to_vec(),
            WeightType::BF16 => {
                return half::bf16::from_f32(reach * self.numbers.even()).to_le_bytes().to_vec();
            }
            WeightType::Q4_0 => vec![half(scale / 8.0)],
            WeightType::Q4_1 => vec![half(scale * 2.0 / 15.0), half(-scale)],
            WeightType::Q5_0 => vec![half(scale / 16.0)],
            WeightType::Q5_1 => vec![half(scale * 2.0 / 31.0), half(-scale)],
            WeightType::Q8_0 => vec![half(scale / 128.0)],
            // Header first and the rest at random; where the header lies behind, it is moved there.
            WeightType::Q4_K | WeightType::Q5_K => {
                let most = if self.kind == WeightType::Q4_K { 15.0 } else { 31.0 };
                vec![half(scale * 2.0 / most / 32.0), half(scale / 32.0)]
            }
            WeightType::Q2_K => vec![half(scale * 2.0 / 3.0 / 8.0), half(scale / 8.0)],
            WeightType::Q3_K => vec![half(scale / 4.0 / 20.0)],
            WeightType::Q6_K => vec![half(scale / 32.0 / 70.0)],
        };
        let mut block = heads.concat();
        while block.len() < self.kind.block_bytes() {
            block.push(self.numbers.next() as u8);
        }
        match self.kind {
            WeightType::Q2_K => block.rotate_left(4),
            WeightType::Q3_K | WeightType::Q6_K => block.rotate_left(2),
            _ => {}
        }
        block
    }
}

/// A type's code in the format.
pub fn code(kind: WeightType) -> u32 {
    match kind {
        WeightType::F32 => 0,
        WeightType::F16 => 1,
        WeightType::Q4_0 => 2,
        WeightType::Q4_1 => 3,
        WeightType::Q5_0 => 6,
        WeightType::Q5_1 => 7,
        WeightType::Q8_0 => 8,
        WeightType::Q2_K => 10,
        WeightType::Q3_K => 11,
        WeightType::Q4_K => 12,
        WeightType::Q5_K => 13,
        WeightType::Q6_K => 14,
        WeightType::BF16 => 30,
    }
}
