//! `ModelSpec` from the metadata of a GGUF file.

use super::family::{self, FAMILIES};
use super::rope::{RopeOptions, RopeScaling, Yarn};
use super::spec::{
    CONTEXT, FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, Key, LAYERS, NORM_EPS, Origin, WINDOW,
};
use super::weights::plain_numbers;
use super::{ModelError, ModelSpec, Names};
use crate::store::{Gguf, Metadata};

/// RoPE's base where a file names none, as the format's description has it.
const DEFAULT_BASE: f32 = 10_000.0;
/// The tensor of divisors of RoPE's speeds, `[head_dim / 2]`.
pub(super) const ROPE_DIVISORS: &str = "rope_freqs.weight";
/// The list of a file's own tokens.
const TOKENS: &str = "tokenizer.ggml.tokens";

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

    fn option(&self, key: &Key) -> Result<usize, ModelError> {
        self.size(key.gguf)
    }

    fn float(&self, key: &str) -> Result<f32, ModelError> {
        Ok(self.metadata.f32(&self.name(key))?)
    }

    fn float_or(&self, key: &str, default: f32) -> Result<f32, ModelError> {
        if self.has(key) { self.float(key) } else { Ok(default) }
    }
}

/// The options that a file names; what is not supported is refused by name.
pub(super) fn read(gguf: &Gguf) -> Result<ModelSpec, ModelError> {
    let metadata = gguf.metadata();
    let architecture = metadata.string("general.architecture")?;
    let origin =
        Origin { file: gguf.path().to_owned(), architecture: Some(architecture.to_owned()) };
    let Some(family) = FAMILIES.iter().find(|row| row.gguf == architecture) else {
        let known = family::names(|row| row.gguf);
        return Err(origin.unsupported(format!(
            "architecture {architecture:?} is not supported; GGUF files of {known} are"
        )));
    };
    let keys = Keys { metadata, architecture };
    let (hidden, heads) = (keys.option(&HIDDEN)?, keys.option(&HEADS)?);
    let head_dim = if keys.has(HEAD_DIM.gguf) {
        keys.option(&HEAD_DIM)?
    } else if heads > 0 && hidden.is_multiple_of(heads) {
        hidden / heads
    } else {
        return Err(origin.wrong(format!(
            "{} {hidden} is not a multiple of {} {heads}, and there is no {}",
            origin.name(&HIDDEN),
            origin.name(&HEADS),
            origin.name(&HEAD_DIM)
        )));
    };
    refuse_options(&keys, head_dim, &origin)?;
    let context_length = keys.option(&CONTEXT)?;
    let scaling = scaling(&keys, context_length, &origin)?;
    let base = f64::from(keys.float_or("rope.freq_base", DEFAULT_BASE)?);
    let divisors = divisors(gguf, head_dim, &origin)?;
    let spec = ModelSpec {
        family: family.family,
        layers: keys.option(&LAYERS)?,
        hidden,
        heads,
        kv_heads: keys.size_or(KV_HEADS.gguf, heads)?,
        head_dim,
        ffn: keys.option(&FFN)?,
        vocab: vocab(gguf, &origin)?,
        norm_eps: keys.float(NORM_EPS.gguf)?,
        rope: RopeOptions { base, pairing: family.gguf_pairing, scaling, divisors },
        qkv_bias: family.qkv_bias,
        qk_norm: family.qk_norm,
        tied_head: gguf.tensor(Names::Gguf.head()).is_none(),
        context_length,
    };
    spec.checked(keys.size_or(WINDOW.gguf, 0)?, &origin)
}

/// Rows of the embedding, which are as many as the file's own list has tokens.
fn vocab(gguf: &Gguf, origin: &Origin) -> Result<usize, ModelError> {
    let name = Names::Gguf.embedding();
    let rows = gguf.tensor(name).and_then(|tensor| tensor.shape.first().copied());
    let Some(rows) = rows else {
        return Err(ModelError::MissingTensor {
            file: origin.file.clone(),
            tensor: name.to_owned(),
        });
    };
    if !gguf.metadata().contains(TOKENS) {
        return Ok(rows);
    }
    match gguf.metadata().array_len(TOKENS)? {
        tokens if tokens == rows => Ok(rows),
        tokens => Err(origin.wrong(format!(
            "{TOKENS} has {tokens} tokens and {name} has {rows} rows; they do not belong together, so \
             fetch the file again or convert the model again"
        ))),
    }
}

/// Divisors of RoPE's speeds, where the file has them.
fn divisors(gguf: &Gguf, head_dim: usize, origin: &Origin) -> Result<Option<Vec<f32>>, ModelError> {
    let Some(tensor) = gguf.tensor(ROPE_DIVISORS) else { return Ok(None) };
    let expected = [head_dim / 2];
    if tensor.shape != expected {
        return Err(ModelError::Shape {
            file: origin.file.clone(),
            tensor: tensor.name,
            found: tensor.shape,
            expected: expected.to_vec(),
        });
    }
    let divisors = plain_numbers(&tensor)?;
    match divisors.iter().find(|divisor| !(divisor.is_finite() && **divisor > 0.0)) {
        None => Ok(Some(divisors)),
        Some(bad) => Err(origin.wrong(format!(
            "tensor {ROPE_DIVISORS} holds {bad}; RoPE's divisors must be positive, so fetch the file again"
        ))),
    }
}

/// How RoPE is scaled beside its divisors.
fn scaling(keys: &Keys<'_>, context: usize, origin: &Origin) -> Result<RopeScaling, ModelError> {
    let (key, old) = ("rope.scaling.type", "rope.scale_linear");
    let kind = match keys.has(key) {
        true => keys.metadata.string(&keys.name(key))?,
        // As the format has it, a factor without a kind is a linear one.
        false => "linear",
    };
    let name = if keys.has("rope.scaling.factor") { "rope.scaling.factor" } else { old };
    // 0 stands for none.
    let factor = match keys.float_or(name, 1.0)? {
        0.0 => 1.0,
        factor => f64::from(factor),
    };
    match kind {
        "none" => Ok(RopeScaling::None),
        "linear" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor }),
        "yarn" => Ok(RopeScaling::Yarn(yarn(keys, factor, context, origin)?)),
        other => Err(origin.unsupported(format!(
            "scaled RoPE of the kind {other:?} ({}) is not supported; none, linear and yarn are",
            keys.name(key)
        ))),
    }
}

fn yarn(keys: &Keys<'_>, factor: f64, context: usize, origin: &Origin) -> Result<Yarn, ModelError> {
    for (key, plain) in [("yarn_log_multiplier", 0.0), ("yarn_ext_factor", 1.0)] {
        let key = format!("rope.scaling.{key}");
        let found = keys.float_or(&key, plain)?;
        // A negative number stands for the plain one.
        if found >= 0.0 && found != plain {
            return Err(origin.unsupported(format!(
                "YaRN with {} {found} is not supported; {plain} is",
                keys.name(&key)
            )));
        }
    }
    let mut attention = Yarn::attention_scale(factor, 1.0);
    for key in ["rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"] {
        attention *= f64::from(keys.float_or(key, 1.0)?);
    }
    Ok(Yarn {
        factor,
        original_context: keys.size_or("rope.scaling.original_context_length", context)?,
        beta_fast: f64::from(keys.float_or("rope.scaling.yarn_beta_fast", 32.0)?),
        beta_slow: f64::from(keys.float_or("rope.scaling.yarn_beta_slow", 1.0)?),
        truncate: true,
        attention,
    })
}

/// Refuses what changes the arithmetic and is not run.
fn refuse_options(keys: &Keys<'_>, head_dim: usize, origin: &Origin) -> Result<(), ModelError> {
    let refuse = |what: String| Err(origin.unsupported(what));
    if keys.size_or("expert_count", 0)? > 0 {
        let name = keys.name("expert_count");
        return refuse(format!("mixture of experts ({name}) is not supported; take a dense model"));
    }
    let rotated = keys.size_or("rope.dimension_count", head_dim)?;
    if rotated != head_dim {
        return refuse(format!(
            "partial RoPE ({rotated} of {head_dim} numbers of a head, {}) is not supported",
            keys.name("rope.dimension_count")
        ));
    }
    let values = keys.size_or("attention.value_length", head_dim)?;
    if values != head_dim {
        return refuse(format!(
            "value heads of {values} beside key heads of {head_dim} ({}) are not supported",
            keys.name("attention.value_length")
        ));
    }
    if keys.has("attention.causal") && !keys.metadata.bool(&keys.name("attention.causal"))? {
        let name = keys.name("attention.causal");
        return refuse(format!(
            "attention that is not causal ({name}) is not supported; take a decoder"
        ));
    }
    Ok(())
}
