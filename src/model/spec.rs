//! `ModelSpec`: everything that distinguishes one decoder from another, as data.

use super::{ModelError, from_config, from_gguf};
use crate::device::{KvType, PageLayout, Pairing};
use crate::store::ModelFiles;

/// Families whose options this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
}

/// Rotary positions. Only the plain kind is run; scaled kinds (linear, dynamic, llama3, yarn,
/// longrope) are refused by name when a specification is read.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct RopeOptions {
    pub base: f64,
    pub pairing: Pairing,
}

/// The options of a decoder. One forward pass serves them all.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ModelSpec {
    pub family: Family,
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    pub heads: usize,
    /// Heads of keys and values; query heads share them in groups of `heads / kv_heads`.
    pub kv_heads: usize,
    /// Width of one head; `heads * head_dim` may differ from `hidden`.
    pub head_dim: usize,
    /// Width of the gated feed-forward layer.
    pub ffn: usize,
    pub vocab: usize,
    pub norm_eps: f32,
    pub rope: RopeOptions,
    /// Biases of the query, key and value products.
    pub qkv_bias: bool,
    /// RMSNorm of every query and key head before the rotation.
    pub qk_norm: bool,
    /// The head is the embedding table.
    pub tied_head: bool,
    /// Most positions that the model was made for.
    pub context_length: usize,
}

impl ModelSpec {
    /// Reads the options from a model's files; what is not supported is refused by name.
    pub fn from_files(files: &ModelFiles) -> Result<Self, ModelError> {
        let spec = match files {
            ModelFiles::Gguf(gguf) => from_gguf::read(gguf)?,
            ModelFiles::Safetensors(model) => {
                from_config::read(model.config(), model.tensor("lm_head.weight").is_some())?
            }
        };
        spec.check()?;
        Ok(spec)
    }

    /// Reads the options from a config.json; `has_head` says whether the weights hold a head.
    pub fn from_config(config: &serde_json::Value, has_head: bool) -> Result<Self, ModelError> {
        let spec = from_config::read(config, has_head)?;
        spec.check()?;
        Ok(spec)
    }

    /// What lies where in a page of this model.
    pub fn page_layout(&self, kv: KvType) -> PageLayout {
        PageLayout {
            layers: self.layers,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            hidden: self.hidden,
            kv,
        }
    }

    /// Refuses numbers that contradict each other or that no model has.
    fn check(&self) -> Result<(), ModelError> {
        let wrong = |what: String| Err(ModelError::Config { what });
        let sizes = [
            ("layers", self.layers, 1 << 12),
            ("hidden size", self.hidden, 1 << 20),
            ("attention heads", self.heads, 1 << 12),
            ("key and value heads", self.kv_heads, 1 << 12),
            ("head size", self.head_dim, 1 << 12),
            ("feed-forward size", self.ffn, 1 << 22),
            ("vocabulary", self.vocab, 1 << 24),
            ("context length", self.context_length, 1 << 28),
        ];
        for (name, size, most) in sizes {
            if size == 0 || size > most {
                return wrong(format!("{name} is {size}; 1 to {most} is possible"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return wrong(format!(
                "{} attention heads cannot share {} key and value heads evenly",
                self.heads, self.kv_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return wrong(format!("head size {} is odd; rotations need pairs", self.head_dim));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return wrong(format!("the norm's epsilon is {}; it must be positive", self.norm_eps));
        }
        if !(self.rope.base.is_finite() && self.rope.base > 0.0) {
            return wrong(format!("the base of RoPE is {}; it must be positive", self.rope.base));
        }
        Ok(())
    }
}
