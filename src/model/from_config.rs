//! `ModelSpec` from a config.json, in the layout of published checkpoints and that of
//! transformers 5 (`rope_parameters`).

use super::family::{self, FAMILIES, FamilyRow};
use super::rope::{RopeOptions, RopeScaling, Yarn};
use super::spec::{
    CONTEXT, FFN, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, NORM_EPS, Origin, VOCAB, WINDOW,
};
use super::{ModelError, ModelSpec};
use crate::device::Pairing;
use serde_json::Value;

/// RoPE's base where a file names none, as the families' configurations have it.
const DEFAULT_BASE: f64 = 10_000.0;

/// An object of the file, and where in the file it stands.
struct Config<'a> {
    json: &'a Value,
    /// Of keys within it: empty, or `rope_scaling.` and the like.
    within: &'static str,
    origin: &'a Origin,
}

impl<'a> Config<'a> {
    /// A key's value; `null` counts as absent.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    fn wrong(&self, key: &str, wanted: &str) -> ModelError {
        let name = format!("{}{key}", self.within);
        self.origin.wrong(match self.get(key) {
            Some(found) => format!("{name} is {found}, {wanted} was expected"),
            None => format!("{name} is missing, {wanted} was expected"),
        })
    }

    fn size(&self, key: &str) -> Result<usize, ModelError> {
        let size = self.get(key).and_then(Value::as_u64);
        let size = size.and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| self.wrong(key, "a whole number"))
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize, ModelError> {
        if self.has(key) { self.size(key) } else { Ok(default) }
    }

    fn float(&self, key: &str) -> Result<f64, ModelError> {
        self.get(key).and_then(Value::as_f64).ok_or_else(|| self.wrong(key, "a number"))
    }

    fn float_or(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        if self.has(key) { self.float(key) } else { Ok(default) }
    }

    fn flag(&self, key: &str) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.wrong(key, "true or false")),
        }
    }

    /// An object within this one.
    fn object(&self, key: &'static str, within: &'static str) -> Result<Option<Self>, ModelError> {
        match self.get(key) {
            None => Ok(None),
            Some(json @ Value::Object(_)) => Ok(Some(Self { json, within, origin: self.origin })),
            Some(_) => Err(self.wrong(key, "an object")),
        }
    }
}

/// The options that a config.json names; what is not supported is refused by name.
pub(super) fn read(json: &Value, has_head: bool, origin: &Origin) -> Result<ModelSpec, ModelError> {
    let config = Config { json, within: "", origin };
    let family = family(&config)?;
    refuse_options(&config)?;
    let (hidden, heads) = (config.size(HIDDEN.config)?, config.size(HEADS.config)?);
    let head_dim = match (config.has(HEAD_DIM.config), family.head_dim) {
        (true, _) => config.size(HEAD_DIM.config)?,
        (false, Some(width)) => width,
        (false, None) if heads == 0 || !hidden.is_multiple_of(heads) => {
            return Err(origin.wrong(format!(
                "hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and there is no head_dim"
            )));
        }
        (false, None) => hidden / heads,
    };
    let context_length = config.size(CONTEXT.config)?;
    let layers = config.size(LAYERS.config)?;
    let spec = ModelSpec {
        family: family.family,
        layers,
        hidden,
        heads,
        kv_heads: config.size_or(KV_HEADS.config, heads)?,
        head_dim,
        ffn: config.size(FFN.config)?,
        vocab: config.size(VOCAB.config)?,
        norm_eps: config.float(NORM_EPS.config)? as f32,
        rope: rope(&config, context_length)?,
        qkv_bias: family.qkv_bias,
        qk_norm: family.qk_norm,
        tied_head: config.flag("tie_word_embeddings")? || !has_head,
        context_length,
    };
    spec.checked(window(&config, layers)?, origin)
}

fn family(config: &Config<'_>) -> Result<&'static FamilyRow, ModelError> {
    let names = config.get("architectures");
    let Some(name) = names.and_then(|names| names.get(0)).and_then(Value::as_str) else {
        return Err(config.wrong("architectures", "a list with a name"));
    };
    FAMILIES.iter().find(|row| row.checkpoint == name).ok_or_else(|| {
        let known = family::names(|row| row.checkpoint);
        // Mixtures of experts are families of their own.
        let moe = name.contains("Moe") || name.contains("Mixtral");
        let kind = if moe { " (a mixture of experts)" } else { "" };
        config.origin.unsupported(format!(
            "architecture {name:?}{kind} is not supported; {known} are, which are dense"
        ))
    })
}

/// RoPE from either layout; kinds that are not run are refused by name.
fn rope(config: &Config<'_>, context: usize) -> Result<RopeOptions, ModelError> {
    let parameters = config.object("rope_parameters", "rope_parameters.")?;
    let old = config.object("rope_scaling", "rope_scaling.")?;
    let base = match &parameters {
        Some(parameters) if parameters.has("rope_theta") => parameters.float("rope_theta")?,
        _ => config.float_or("rope_theta", DEFAULT_BASE)?,
    };
    let read = |options: Option<&Config<'_>>| match options {
        Some(options) => scaling(options, config, context),
        None => Ok(RopeScaling::None),
    };
    let scaling = match (read(parameters.as_ref())?, read(old.as_ref())?) {
        (RopeScaling::None, other) | (other, RopeScaling::None) => other,
        (new, old) if new == old => new,
        _ => {
            return Err(config.origin.wrong(
                "rope_parameters and rope_scaling say different things; keep one of them".into(),
            ));
        }
    };
    Ok(RopeOptions { base, pairing: Pairing::Half, scaling, divisors: None })
}

fn scaling(
    options: &Config<'_>,
    config: &Config<'_>,
    context: usize,
) -> Result<RopeScaling, ModelError> {
    let entries = options.json.as_object().into_iter().flatten();
    if let Some((kind, _)) = entries.into_iter().find(|(_, value)| value.is_object()) {
        return Err(config.origin.unsupported(format!(
            "rotary positions that differ between layers ({}{kind}) are not supported; take a model whose \
             layers have the same",
            options.within
        )));
    }
    let key = if options.has("rope_type") { "rope_type" } else { "type" };
    let kind = match options.get(key) {
        Some(kind) => kind.as_str().ok_or_else(|| options.wrong(key, "a name"))?,
        // Without a kind these are the plain ones; a factor asks for one.
        None if options.has("factor") => return Err(options.wrong("rope_type", "a name")),
        None => "default",
    };
    let original = || {
        let names = [options, config];
        let key = "original_max_position_embeddings";
        match names.into_iter().find(|config| config.has(key)) {
            Some(config) => config.size(key),
            None => Ok(context),
        }
    };
    Ok(match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: options.float("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: options.float("factor")?,
            low: options.float("low_freq_factor")?,
            high: options.float("high_freq_factor")?,
            original_context: original()?,
        },
        "yarn" => RopeScaling::Yarn(yarn(options, original()?)?),
        other => {
            return Err(config.origin.unsupported(format!(
                "scaled RoPE of the kind {other:?} ({}{key}) is not supported; default, linear, llama3 and \
                 yarn are",
                options.within
            )));
        }
    })
}

fn yarn(options: &Config<'_>, original_context: usize) -> Result<Yarn, ModelError> {
    let factor = options.float("factor")?;
    let attention = if options.has("attention_factor") {
        options.float("attention_factor")?
    } else if options.float_or("mscale", 0.0)? != 0.0
        && options.float_or("mscale_all_dim", 0.0)? != 0.0
    {
        let scale = |key| Ok::<_, ModelError>(Yarn::attention_scale(factor, options.float(key)?));
        scale("mscale")? / scale("mscale_all_dim")?
    } else {
        Yarn::attention_scale(factor, 1.0)
    };
    Ok(Yarn {
        factor,
        original_context,
        beta_fast: options.float_or("beta_fast", 32.0)?,
        beta_slow: options.float_or("beta_slow", 1.0)?,
        truncate: !options.has("truncate") || options.flag("truncate")?,
        attention,
    })
}

/// Refuses what changes the arithmetic and is not run.
fn refuse_options(config: &Config<'_>) -> Result<(), ModelError> {
    let refuse = |what: String| Err(config.origin.unsupported(what));
    if let Some(quantisation) = config.get("quantization_config") {
        let method = quantisation.get("quant_method").and_then(Value::as_str).unwrap_or("unnamed");
        return refuse(format!(
            "weights quantised by {method:?} (quantization_config) are not supported; take a GGUF file of \
             the model (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K), or the plain checkpoint with \
             --quantise"
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
    if config.float_or("partial_rotary_factor", 1.0)? != 1.0 {
        return refuse(
            "partial RoPE (partial_rotary_factor) is not supported; take a model that rotates whole \
             heads"
                .into(),
        );
    }
    Ok(())
}

/// Positions that attention sees at most; 0: all. Kinds of layers that mix both are refused by name.
fn window(config: &Config<'_>, layers: usize) -> Result<usize, ModelError> {
    let window = config.size_or(WINDOW.config, 0)?;
    // Families without the switch have their window in every layer.
    let switched_off = config.has("use_sliding_window") && !config.flag("use_sliding_window")?;
    if let Some(kinds) = config.get("layer_types") {
        let kinds = kinds.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(kinds));
        if let Some(kind) = kinds.iter().find(|kind| kind.as_str() != Some("full_attention")) {
            return Err(config.origin.unsupported(format!(
                "layers of the kind {kind} (layer_types) are not supported; take a model with full \
                 attention"
            )));
        }
    }
    // With the switch, layers before this one see everything.
    let full =
        config.has("use_sliding_window") && config.size_or("max_window_layers", 0)? >= layers;
    Ok(if switched_off || full { 0 } else { window })
}
