//! `ModelSpec`: everything that distinguishes one decoder from another, as data.

use super::rope::RopeOptions;
use super::{Family, LayerTensor, ModelError, from_config, from_gguf};
use crate::device::{KvType, PageLayout};
use crate::store::ModelFiles;
use std::path::{Path, PathBuf};

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
    /// Most positions that the model was made for; with YaRN, those that its factor reaches to.
    pub context_length: usize,
}

/// The file that options were read from, and what it calls them: errors name both.
pub(super) struct Origin {
    pub file: PathBuf,
    /// Of a GGUF file; None: config.json.
    pub architecture: Option<String>,
}

/// One option's name in config.json, and in GGUF metadata below the architecture.
pub(super) struct Key {
    pub config: &'static str,
    pub gguf: &'static str,
}

macro_rules! keys {
    ($($name:ident: $config:literal, $gguf:literal;)*) => {$(
        pub(super) const $name: Key = Key { config: $config, gguf: $gguf };
    )*};
}
keys! {
    LAYERS: "num_hidden_layers", "block_count";
    HIDDEN: "hidden_size", "embedding_length";
    HEADS: "num_attention_heads", "attention.head_count";
    KV_HEADS: "num_key_value_heads", "attention.head_count_kv";
    HEAD_DIM: "head_dim", "attention.key_length";
    FFN: "intermediate_size", "feed_forward_length";
    VOCAB: "vocab_size", "vocab_size";
    NORM_EPS: "rms_norm_eps", "attention.layer_norm_rms_epsilon";
    CONTEXT: "max_position_embeddings", "context_length";
    WINDOW: "sliding_window", "attention.sliding_window";
}

impl Origin {
    pub(super) fn config(file: &Path) -> Self {
        Self { file: file.to_owned(), architecture: None }
    }

    /// An option as the file calls it.
    pub(super) fn name(&self, key: &Key) -> String {
        match &self.architecture {
            Some(architecture) => format!("{architecture}.{}", key.gguf),
            None => key.config.to_owned(),
        }
    }

    /// What is wrong with the file.
    pub(super) fn wrong(&self, what: String) -> ModelError {
        ModelError::Config { file: self.file.clone(), what }
    }

    /// What the file asks for and is not run.
    pub(super) fn unsupported(&self, what: String) -> ModelError {
        ModelError::Unsupported { what: format!("{}: {what}", self.file.display()) }
    }
}

impl ModelSpec {
    /// Reads the options from a model's files; what is not supported is refused by name.
    pub fn from_files(files: &ModelFiles) -> Result<Self, ModelError> {
        match files {
            ModelFiles::Gguf(gguf) => from_gguf::read(gguf),
            ModelFiles::Safetensors(model) => {
                let origin = Origin::config(&model.folder().join("config.json"));
                let has_head = model.tensor("lm_head.weight").is_some();
                from_config::read(model.config(), has_head, &origin)
            }
        }
    }

    /// Reads the options from a config.json; `has_head` says whether the weights hold a head.
    pub fn from_config(config: &serde_json::Value, has_head: bool) -> Result<Self, ModelError> {
        from_config::read(config, has_head, &Origin::config(Path::new("config.json")))
    }

    /// The shape of a layer's matrix, `[outputs, inputs]`, or of a vector, `[1, len]`.
    pub fn shape(&self, tensor: LayerTensor) -> [usize; 2] {
        use LayerTensor as T;
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        match tensor {
            T::Query => [q, self.hidden],
            T::Key | T::Value => [kv, self.hidden],
            T::Output => [self.hidden, q],
            T::Gate | T::Up => [self.ffn, self.hidden],
            T::Down => [self.hidden, self.ffn],
            T::QueryBias => [1, q],
            T::KeyBias | T::ValueBias => [1, kv],
            T::QueryNorm | T::KeyNorm => [1, self.head_dim],
            T::AttentionNorm | T::FeedForwardNorm => [1, self.hidden],
        }
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

    /// Takes the context that RoPE reaches to, and refuses numbers that contradict each other or that
    /// no model has, and attention that would not see all of the context.
    pub(super) fn checked(mut self, window: usize, origin: &Origin) -> Result<Self, ModelError> {
        let wrong = |what: String| Err(origin.wrong(what));
        let sizes = [
            (&LAYERS, self.layers, 1 << 12),
            (&HIDDEN, self.hidden, 1 << 20),
            (&HEADS, self.heads, 1 << 12),
            (&KV_HEADS, self.kv_heads, 1 << 12),
            (&HEAD_DIM, self.head_dim, 1 << 12),
            (&FFN, self.ffn, 1 << 22),
            (&VOCAB, self.vocab, 1 << 24),
            (&CONTEXT, self.context_length, 1 << 28),
        ];
        for (key, size, most) in sizes {
            if size == 0 || size > most {
                let name = origin.name(key);
                return wrong(format!("{name} is {size}; 1 to {most} is possible"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return wrong(format!(
                "{} attention heads cannot share {} key and value heads evenly ({}, {})",
                self.heads,
                self.kv_heads,
                origin.name(&HEADS),
                origin.name(&KV_HEADS)
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            let name = origin.name(&HEAD_DIM);
            return wrong(format!(
                "a head of {} is odd; rotations need pairs ({name})",
                self.head_dim
            ));
        }
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            let name = origin.name(&NORM_EPS);
            return wrong(format!("the epsilon {name} is {}; it must be positive", self.norm_eps));
        }
        if let Some(what) = self.rope.contradiction(self.head_dim) {
            return wrong(what);
        }
        self.context_length = self.context_length.max(self.rope.reach().min(1 << 28));
        if window > 0 && window < self.context_length {
            return Err(origin.unsupported(format!(
                "sliding-window attention ({} {window}) is not supported; take a model with full attention",
                origin.name(&WINDOW)
            )));
        }
        Ok(self)
    }
}
