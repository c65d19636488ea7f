//! `ModelSpec` from the metadata of a GGUF file.

use super::{Family, ModelError, ModelSpec, RopeOptions};
use crate::device::Pairing;
use crate::store::{Gguf, Metadata};

/// RoPE's base where a file names none, as the format's description has it.
const DEFAULT_BASE: f32 = 10_000.0;

/// Keys below a file's architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl Keys<'_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn has(&self, key: &str) -> bool {
        self.metadata.contains(&self.name(key))
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        Ok(self.metadata.u32(&self.name(key))? as usize)
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        if self.has(key) { self.size(key) } else { Ok(default) }
    }

    fn float(&self, key: &str) -> Result<f32, ModelError> {
        Ok(self.metadata.f32(&self.name(key))?)
    }
}

/// The options that a file names; what is not supported is refused by name.
pub(super) fn read(gguf: &Gguf) -> Result<ModelSpec, ModelError> {
    let metadata = gguf.metadata();
    let architecture = metadata.string("general.architecture")?;
    let (family, pairing) = match architecture {
        "llama" => (Family::Llama, Pairing::Interleaved),
        "qwen2" => (Family::Qwen2, Pairing::Half),
        "qwen3" => (Family::Qwen3, Pairing::Half),
        other => {
            return Err(ModelError::unsupported(format!(
                "architecture {other:?} is not supported; GGUF files of llama, qwen2 and qwen3 are"
            )));
        }
    };
    let keys = Keys { metadata, architecture };
    let (hidden, heads) = (keys.size("embedding_length")?, keys.size("attention.head_count")?);
    let head_dim = keys.size_or("attention.key_length", hidden / heads.max(1))?;
    refuse_options(gguf, &keys, head_dim)?;
    let vocab = gguf
        .tensor("token_embd.weight")
        .and_then(|tensor| tensor.shape.first().copied())
        .ok_or_else(|| ModelError::MissingTensor { tensor: "token_embd.weight".into() })?;
    let base =
        if keys.has("rope.freq_base") { keys.float("rope.freq_base")? } else { DEFAULT_BASE };
    Ok(ModelSpec {
        family,
        layers: keys.size("block_count")?,
        hidden,
        heads,
        kv_heads: keys.size_or("attention.head_count_kv", heads)?,
        head_dim,
        ffn: keys.size("feed_forward_length")?,
        vocab,
        norm_eps: keys.float("attention.layer_norm_rms_epsilon")?,
        rope: RopeOptions { base: f64::from(base), pairing },
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
        tied_head: gguf.tensor("output.weight").is_none(),
        context_length: keys.size("context_length")?,
    })
}

/// Refuses what changes the arithmetic and is not run.
fn refuse_options(gguf: &Gguf, keys: &Keys<'_>, head_dim: usize) -> Result<(), ModelError> {
    let refuse = |what: String| Err(ModelError::Unsupported { what });
    if keys.size_or("expert_count", 0)? > 0 {
        return refuse(
            "mixture of experts (expert_count) is not supported; take a dense model".into(),
        );
    }
    if keys.has("rope.scaling.type") {
        let kind = keys.metadata.string(&keys.name("rope.scaling.type"))?;
        if kind != "none" {
            return refuse(format!(
                "scaled RoPE ({kind:?}) is not supported; take a model with plain rotary positions"
            ));
        }
    }
    if keys.has("rope.scale_linear") && keys.float("rope.scale_linear")? != 1.0 {
        return refuse(
            "scaled RoPE (\"linear\") is not supported; take a model with plain rotary positions"
                .into(),
        );
    }
    if gguf.tensor("rope_freqs.weight").is_some() {
        return refuse(
            "scaled RoPE (\"llama3\", by rope_freqs.weight) is not supported; take a model with \
             plain rotary positions"
                .into(),
        );
    }
    let rotated = keys.size_or("rope.dimension_count", head_dim)?;
    if rotated != head_dim {
        return refuse(format!(
            "partial RoPE ({rotated} of {head_dim} numbers of a head) is not supported"
        ));
    }
    let values = keys.size_or("attention.value_length", head_dim)?;
    if values != head_dim {
        return refuse(format!(
            "value heads of {values} beside key heads of {head_dim} are not supported"
        ));
    }
    let window = keys.size_or("attention.sliding_window", 0)?;
    if window > 0 && window < keys.size("context_length")? {
        return refuse(format!(
            "sliding-window attention ({window} positions) is not supported; take a model with full \
             attention"
        ));
    }
    if keys.has("attention.causal") && !keys.metadata.bool(&keys.name("attention.causal"))? {
        return refuse("attention that is not causal is not supported; take a decoder".into());
    }
    Ok(())
}
