//! What a decoder's tensors are called in GGUF files and in checkpoints.

use super::from_gguf;
use crate::store::ModelFiles;

/// The naming of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    Gguf,
    /// Checkpoints in safetensors.
    Checkpoint,
}

/// A tensor that every layer has, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerTensor {
    AttentionNorm,
    Query,
    QueryBias,
    QueryNorm,
    Key,
    KeyBias,
    KeyNorm,
    Value,
    ValueBias,
    Output,
    FeedForwardNorm,
    Gate,
    Up,
    Down,
}

impl Names {
    /// The naming that a model's files use.
    pub fn of(files: &ModelFiles) -> Self {
        match files {
            ModelFiles::Gguf(_) => Self::Gguf,
            ModelFiles::Safetensors(_) => Self::Checkpoint,
        }
    }

    /// The embedding table, `[vocab, hidden]`.
    pub fn embedding(self) -> &'static str {
        match self {
            Self::Gguf => "token_embd.weight",
            Self::Checkpoint => "model.embed_tokens.weight",
        }
    }

    /// The last norm, `[hidden]`.
    pub fn final_norm(self) -> &'static str {
        match self {
            Self::Gguf => "output_norm.weight",
            Self::Checkpoint => "model.norm.weight",
        }
    }

    /// The head, `[vocab, hidden]`.
    pub fn head(self) -> &'static str {
        match self {
            Self::Gguf => "output.weight",
            Self::Checkpoint => "lm_head.weight",
        }
    }

    /// A tensor of a layer.
    pub fn layer(self, layer: usize, tensor: LayerTensor) -> String {
        use LayerTensor as T;
        let (gguf, checkpoint) = match tensor {
            T::AttentionNorm => ("attn_norm.weight", "input_layernorm.weight"),
            T::Query => ("attn_q.weight", "self_attn.q_proj.weight"),
            T::QueryBias => ("attn_q.bias", "self_attn.q_proj.bias"),
            T::QueryNorm => ("attn_q_norm.weight", "self_attn.q_norm.weight"),
            T::Key => ("attn_k.weight", "self_attn.k_proj.weight"),
            T::KeyBias => ("attn_k.bias", "self_attn.k_proj.bias"),
            T::KeyNorm => ("attn_k_norm.weight", "self_attn.k_norm.weight"),
            T::Value => ("attn_v.weight", "self_attn.v_proj.weight"),
            T::ValueBias => ("attn_v.bias", "self_attn.v_proj.bias"),
            T::Output => ("attn_output.weight", "self_attn.o_proj.weight"),
            T::FeedForwardNorm => ("ffn_norm.weight", "post_attention_layernorm.weight"),
            T::Gate => ("ffn_gate.weight", "mlp.gate_proj.weight"),
            T::Up => ("ffn_up.weight", "mlp.up_proj.weight"),
            T::Down => ("ffn_down.weight", "mlp.down_proj.weight"),
        };
        match self {
            Self::Gguf => format!("blk.{layer}.{gguf}"),
            Self::Checkpoint => format!("model.layers.{layer}.{checkpoint}"),
        }
    }

    /// Whether a tensor is no weight, or may be left aside without changing any result.
    pub(super) fn is_idle(self, name: &str, tied_head: bool) -> bool {
        let buffer = name.ends_with("rotary_emb.inv_freq");
        let rope = self == Self::Gguf && name == from_gguf::ROPE_DIVISORS;
        buffer || rope || tied_head && name == self.head()
    }
}
