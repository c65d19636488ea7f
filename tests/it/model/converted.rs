//! GGUF files written from a checkpoint as its family's converter writes them: names, order of query
//! and key rows, and how RoPE's scaling is told.

use super::tiny::open;
use crate::support::GgufBuilder;
use serde_json::Value;
use std::f64::consts::PI;
use std::path::Path;
use unsay::store::{ModelFiles, SafetensorsModel, Tensor};

/// A tensor of a layer: in the checkpoint, and in the GGUF file.
const LAYER_NAMES: [(&str, &str); 14] = [
    ("input_layernorm.weight", "attn_norm.weight"),
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
];

/// Rows of each head in the order of the Llama family's converter: `[2, head_dim / 2]` to
/// `[head_dim / 2, 2]`.
fn side_by_side(tensor: &Tensor, head_dim: usize) -> Vec<u8> {
    let row = tensor.bytes().len() / tensor.shape[0];
    let rows: Vec<&[u8]> = tensor.bytes().chunks(row).collect();
    let half = head_dim / 2;
    let from = |to: usize| {
        let (head, within) = (to / head_dim, to % head_dim);
        head * head_dim + within % 2 * half + within / 2
    };
    (0..rows.len()).flat_map(|to| rows[from(to)]).copied().collect()
}

/// The config's number, from where either layout has it.
fn number(config: &Value, key: &str) -> Option<f64> {
    config.get(key).and_then(Value::as_f64)
}

/// Adds what the converter writes of RoPE.
fn with_rope(
    file: GgufBuilder,
    architecture: &str,
    config: &Value,
    head_dim: usize,
) -> GgufBuilder {
    let key = |name: &str| format!("{architecture}.rope.{name}");
    let float = |file: GgufBuilder, name: &str, x: f64| {
        file.raw(&key(name), GgufBuilder::F32, &(x as f32).to_le_bytes())
    };
    let rope = &config["rope_parameters"];
    let base = number(rope, "rope_theta").expect("a base");
    let file = float(file, "freq_base", base);
    match rope["rope_type"].as_str().expect("a kind") {
        "default" => file,
        kind @ ("linear" | "yarn") => {
            let file = file.string(&key("scaling.type"), kind);
            let file = float(file, "scaling.factor", number(rope, "factor").expect("a factor"));
            match number(rope, "original_max_position_embeddings") {
                Some(original) => {
                    file.u32(&key("scaling.original_context_length"), original as u32)
                }
                None => file,
            }
        }
        "llama3" => {
            let of = |name: &str| number(rope, name).expect(name);
            let (factor, old) = (of("factor"), of("original_max_position_embeddings"));
            let (low, high) = (of("low_freq_factor"), of("high_freq_factor"));
            let divisors = (0..head_dim / 2).flat_map(|i| {
                let wavelength = 2.0 * PI * base.powf(2.0 * i as f64 / head_dim as f64);
                let divisor = if wavelength < old / high {
                    1.0
                } else if wavelength > old / low {
                    factor
                } else {
                    let smooth = (old / wavelength - low) / (high - low);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                };
                (divisor as f32).to_le_bytes()
            });
            let bytes: Vec<u8> = divisors.collect();
            file.tensor("rope_freqs.weight", 0, &[head_dim as u64 / 2], &bytes)
        }
        other => panic!("{other}"),
    }
}

/// The checkpoint of a folder (f32) as a GGUF file.
pub fn gguf_of(folder: &Path) -> ModelFiles {
    open(&builder_of(folder))
}

/// As [`gguf_of`], before it is written.
pub fn builder_of(folder: &Path) -> GgufBuilder {
    let model = SafetensorsModel::open(folder).expect("the folder opens");
    let config = model.config();
    let size = |key: &str| config.get(key).and_then(Value::as_u64).map(|n| n as u32);
    let (hidden, heads) = (size("hidden_size").unwrap(), size("num_attention_heads").unwrap());
    let head_dim = size("head_dim").unwrap_or(hidden / heads);
    let architecture = match config["architectures"][0].as_str().expect("an architecture") {
        "LlamaForCausalLM" | "MistralForCausalLM" => "llama",
        "Qwen2ForCausalLM" => "qwen2",
        "Qwen3ForCausalLM" => "qwen3",
        other => panic!("{other}"),
    };
    let key = |name: &str| format!("{architecture}.{name}");
    let eps = number(config, "rms_norm_eps").unwrap() as f32;
    let file = GgufBuilder::default()
        .string("general.architecture", architecture)
        .u32(&key("block_count"), size("num_hidden_layers").unwrap())
        .u32(&key("context_length"), size("max_position_embeddings").unwrap())
        .u32(&key("embedding_length"), hidden)
        .u32(&key("feed_forward_length"), size("intermediate_size").unwrap())
        .u32(&key("attention.head_count"), heads)
        .u32(&key("attention.head_count_kv"), size("num_key_value_heads").unwrap())
        .raw(&key("attention.layer_norm_rms_epsilon"), GgufBuilder::F32, &eps.to_le_bytes());
    // Written where it is not what the others say.
    let file = match head_dim * heads == hidden {
        true => file,
        false => file
            .u32(&key("attention.key_length"), head_dim)
            .u32(&key("attention.value_length"), head_dim),
    };
    let mut file = with_rope(file, architecture, config, head_dim as usize);
    for name in model.tensor_names() {
        let tensor = model.tensor(name).unwrap();
        let new = new_name(name);
        let turned = architecture == "llama"
            && (new.ends_with("attn_q.weight") || new.ends_with("attn_k.weight"));
        let bytes = match turned {
            true => side_by_side(&tensor, head_dim as usize),
            false => tensor.bytes().to_vec(),
        };
        let shape: Vec<u64> = tensor.shape.iter().map(|&n| n as u64).collect();
        file = file.tensor(&new, 0, &shape, &bytes);
    }
    file
}

fn new_name(name: &str) -> String {
    match name {
        "model.embed_tokens.weight" => "token_embd.weight".into(),
        "model.norm.weight" => "output_norm.weight".into(),
        "lm_head.weight" => "output.weight".into(),
        _ => {
            let rest = name.strip_prefix("model.layers.").expect("a tensor of a layer");
            let (layer, rest) = rest.split_once('.').expect("a number");
            let found = LAYER_NAMES.iter().find(|(old, _)| *old == rest).expect("a known tensor");
            format!("blk.{layer}.{}", found.1)
        }
    }
}
