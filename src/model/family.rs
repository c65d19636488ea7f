//! The families as rows of a table: what a file's architecture says of its decoder by name alone.

use crate::device::Pairing;

/// Families whose options this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
}

/// What is the same in every model of a family.
pub(super) struct FamilyRow {
    pub family: Family,
    /// `architectures` of config.json.
    pub checkpoint: &'static str,
    /// `general.architecture` of GGUF files.
    pub gguf: &'static str,
    /// How a GGUF file has the rows of queries and keys; checkpoints have them in halves.
    pub gguf_pairing: Pairing,
    pub qkv_bias: bool,
    pub qk_norm: bool,
    /// Width of a head where config.json names none; None: the heads share `hidden`.
    pub head_dim: Option<usize>,
}

/// The converter of Llama's family reorders query and key rows so that pairs lie side by side; the
/// Qwen families' leaves them as they are. Mistral's files are files of the Llama family.
pub(super) const FAMILIES: [FamilyRow; 4] = [
    FamilyRow {
        family: Family::Llama,
        checkpoint: "LlamaForCausalLM",
        gguf: "llama",
        gguf_pairing: Pairing::Interleaved,
        qkv_bias: false,
        qk_norm: false,
        head_dim: None,
    },
    FamilyRow {
        family: Family::Mistral,
        checkpoint: "MistralForCausalLM",
        gguf: "llama",
        gguf_pairing: Pairing::Interleaved,
        qkv_bias: false,
        qk_norm: false,
        head_dim: None,
    },
    FamilyRow {
        family: Family::Qwen2,
        checkpoint: "Qwen2ForCausalLM",
        gguf: "qwen2",
        gguf_pairing: Pairing::Half,
        qkv_bias: true,
        qk_norm: false,
        head_dim: None,
    },
    FamilyRow {
        family: Family::Qwen3,
        checkpoint: "Qwen3ForCausalLM",
        gguf: "qwen3",
        gguf_pairing: Pairing::Half,
        qkv_bias: false,
        qk_norm: true,
        head_dim: Some(128),
    },
];

/// The names of all families by one of their columns, for messages.
pub(super) fn names(column: impl Fn(&FamilyRow) -> &'static str) -> String {
    let mut names: Vec<&str> = FAMILIES.iter().map(column).collect();
    names.dedup();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}
