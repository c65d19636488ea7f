//! `ModelSpec` from a config.json, in the layout of published checkpoints and that of
//! transformers 5 (`rope_parameters`).

use super::{Family, ModelError, ModelSpec, RopeOptions};
use crate::device::Pairing;
use serde_json::Value;

/// RoPE's base where a file names none, as the families' configurations have it.
const DEFAULT_BASE: f64 = 10_000.0;
/// Head size of Qwen3 where a file names none, as its configuration has it.
const QWEN3_HEAD_DIM: usize = 128;

struct Config<'a>(&'a Value);

impl<'a> Config<'a> {
    /// A key's value; `null` counts as absent.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn wrong(key: &str, wanted: &str, found: Option<&Value>) -> ModelError {
        let what = match found {
            Some(found) => format!("{key} is {found}, {wanted} was expected"),
            None => format!("{key} is missing, {wanted} was expected"),
        };
        ModelError::Config { what }
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        let found = self.get(key);
        let size = found.and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| Self::wrong(key, "a whole number", found))
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        if self.get(key).is_some() { self.size(key) } else { Ok(default) }
    }

    fn float(&self, key: &str) -> Result<f64, ModelError> {
        let found = self.get(key);
        found.and_then(Value::as_f64).ok_or_else(|| Self::wrong(key, "a number", found))
    }

    fn flag(&self, key: &str) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            found => Err(Self::wrong(key, "true or false", found)),
        }
    }
}

/// The options that a config.json names; what is not supported is refused by name.
pub(super) fn read(json: &Value, has_head: bool) -> Result<ModelSpec, ModelError> {
    let config = Config(json);
    let family = family(&config)?;
    refuse_options(&config)?;
    let (hidden, heads) = (config.size("hidden_size")?, config.size("num_attention_heads")?);
    let head_dim = match (config.get("head_dim"), family) {
        (None, Family::Qwen3) => QWEN3_HEAD_DIM,
        (None, _) if heads == 0 || !hidden.is_multiple_of(heads) => {
            return Err(ModelError::Config {
                what: format!(
                    "hidden_size {hidden} is not a multiple of {heads} heads, and there is no head_dim"
                ),
            });
        }
        (None, _) => hidden / heads,
        (Some(_), _) => config.size("head_dim")?,
    };
    Ok(ModelSpec {
        family,
        layers: config.size("num_hidden_layers")?,
        hidden,
        heads,
        kv_heads: config.size_or("num_key_value_heads", heads)?,
        head_dim,
        ffn: config.size("intermediate_size")?,
        vocab: config.size("vocab_size")?,
        norm_eps: config.float("rms_norm_eps")? as f32,
        rope: RopeOptions { base: rope_base(&config)?, pairing: Pairing::Half },
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
        tied_head: config.flag("tie_word_embeddings")? || !has_head,
        context_length: config.size("max_position_embeddings")?,
    })
}

fn family(config: &Config<'_>) -> Result<Family, ModelError> {
    let names = config.get("architectures");
    let name = names.and_then(|names| names.get(0)).and_then(Value::as_str);
    match name {
        Some("LlamaForCausalLM") => Ok(Family::Llama),
        Some("MistralForCausalLM") => Ok(Family::Mistral),
        Some("Qwen2ForCausalLM") => Ok(Family::Qwen2),
        Some("Qwen3ForCausalLM") => Ok(Family::Qwen3),
        Some(other) => Err(ModelError::unsupported(format!(
            "architecture {other:?} is not supported; LlamaForCausalLM, MistralForCausalLM, \
             Qwen2ForCausalLM and Qwen3ForCausalLM are"
        ))),
        None => Err(Config::wrong("architectures", "a list with a name", names)),
    }
}

/// The base of RoPE from either layout; scaled kinds are refused by name.
fn rope_base(config: &Config<'_>) -> Result<f64, ModelError> {
    let nested = config.get("rope_parameters").map(Config);
    for scaling in [nested.as_ref().map(|nested| nested.0), config.get("rope_scaling")] {
        let Some(scaling) = scaling.map(Config) else { continue };
        let kind = scaling.get("rope_type").or(scaling.get("type"));
        match kind.map(|kind| kind.as_str().ok_or(kind)) {
            Some(Ok("default")) => {}
            // `rope_parameters` without a kind is the plain one; `rope_scaling` exists to scale.
            None if scaling.get("factor").is_none() => {}
            Some(Ok(kind)) => {
                return Err(ModelError::unsupported(format!(
                    "scaled RoPE ({kind:?}) is not supported; take a model with plain rotary positions"
                )));
            }
            Some(Err(_)) | None => {
                return Err(Config::wrong("the kind of RoPE (rope_type)", "a name", kind));
            }
        }
    }
    match nested {
        Some(nested) if nested.get("rope_theta").is_some() => nested.float("rope_theta"),
        _ if config.get("rope_theta").is_some() => config.float("rope_theta"),
        _ => Ok(DEFAULT_BASE),
    }
}

/// Refuses what changes the arithmetic and is not run.
fn refuse_options(config: &Config<'_>) -> Result<(), ModelError> {
    let refuse = |what: String| Err(ModelError::Unsupported { what });
    if let Some(quantisation) = config.get("quantization_config") {
        let method = quantisation.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed");
        return refuse(format!(
            "weights quantised by {method:?} are not supported; take the plain checkpoint or a GGUF \
             file (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K)"
        ));
    }
    for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
        if config.size_or(key, 0)? > 0 {
            return refuse(format!(
                "mixture of experts ({key}) is not supported; take a dense model"
            ));
        }
    }
    match config.get("hidden_act") {
        None => {}
        Some(Value::String(act)) if act == "silu" => {}
        Some(other) => return refuse(format!("hidden_act {other} is not supported; \"silu\" is")),
    }
    for key in ["attention_bias", "mlp_bias"] {
        if config.flag(key)? {
            return refuse(format!("{key} is not supported; take a model without these biases"));
        }
    }
    for key in ["partial_rotary_factor"] {
        if config.get(key).is_some() && config.float(key)? != 1.0 {
            return refuse(format!("partial RoPE ({key}) is not supported"));
        }
    }
    refuse_window(config)
}

/// Refuses attention that does not see every position.
fn refuse_window(config: &Config<'_>) -> Result<(), ModelError> {
    let switched_off =
        config.get("use_sliding_window").is_some() && !config.flag("use_sliding_window")?;
    let window = config.size_or("sliding_window", 0)?;
    if !switched_off && window > 0 && window < config.size("max_position_embeddings")? {
        return Err(ModelError::unsupported(format!(
            "sliding-window attention (sliding_window {window}) is not supported; take a model with \
             full attention"
        )));
    }
    let Some(kinds) = config.get("layer_types") else { return Ok(()) };
    let kinds = kinds.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(kinds));
    match kinds.iter().find(|kind| kind.as_str() != Some("full_attention")) {
        None => Ok(()),
        Some(kind) => Err(ModelError::unsupported(format!(
            "layers of the kind {kind} (layer_types) are not supported; take a model with full \
             attention"
        ))),
    }
}
