//! LoRA adapters (Hu et al. 2021) in PEFT's format: which products of which layers one changes, and
//! by what.

use super::spec::Origin;
use super::weights::plain_numbers;
use super::{LayerTensor, ModelError, ModelSpec, Names};
use crate::device::{Added, Pairing};
use crate::store::{AdapterFiles, Tensor};
use serde_json::Value;
use std::collections::BTreeSet;

/// The products of a layer that an adapter may change.
pub(super) const SITES: [LayerTensor; 7] = [
    LayerTensor::Query,
    LayerTensor::Key,
    LayerTensor::Value,
    LayerTensor::Output,
    LayerTensor::Gate,
    LayerTensor::Up,
    LayerTensor::Down,
];

/// What PEFT writes before the base model's name of a tensor.
const PREFIX: &str = "base_model.model.";

/// An adapter that was held against its base's options; its numbers are still in the file.
pub(super) struct Adapter {
    /// By layer and site.
    changes: Vec<[Option<Change>; SITES.len()]>,
    scale: f64,
}

/// The change of one product: `W + scale · B A`.
struct Change {
    /// `A [rank, inputs]`
    down: Tensor,
    /// `B [outputs, rank]`
    up: Tensor,
    /// The base has the rows of each head pairwise, the adapter in halves: the width of a head.
    reordered: Option<usize>,
}

/// The numbers of one change.
pub(super) struct Numbers {
    /// `[rank, inputs]`
    pub down: Vec<f32>,
    /// `[rank, outputs]`, times the scale.
    pub up: Vec<f32>,
}

impl Numbers {
    pub(super) fn added(&self) -> Added<'_> {
        Added { down: &self.down, up: &self.up }
    }
}

/// Where a layer's tensor stands among [`SITES`]; None: no adapter changes it.
pub(super) fn site(tensor: LayerTensor) -> Option<usize> {
    SITES.iter().position(|site| *site == tensor)
}

/// The module of a site, e.g. `q_proj`.
fn module(site: LayerTensor) -> String {
    let name = Names::Checkpoint.layer(0, site);
    let parts: Vec<&str> = name.split('.').collect();
    parts[parts.len() - 2].to_owned()
}

impl Adapter {
    /// Reads what an adapter says of itself and sees that it fits its base, whose tensors are named as
    /// `names` has it; what is not run is refused by name.
    pub(super) fn read(
        files: &AdapterFiles,
        spec: &ModelSpec,
        names: Names,
    ) -> Result<Self, ModelError> {
        let origin = Origin::config(&files.folder().join("adapter_config.json"));
        let config = Config { json: files.config(), origin: &origin };
        config.refuse_options()?;
        let (rank, scale) = config.rank_and_scale()?;
        let wanted = config.modules()?;
        let mut reader = Reader { files, rank, used: BTreeSet::new() };
        let changes = (0..spec.layers)
            .map(|layer| reader.layer(layer, spec, names, &wanted))
            .collect::<Result<Vec<_>, _>>()?;
        reader.refuse_the_rest()?;
        if changes.iter().flatten().all(Option::is_none) {
            return Err(origin.wrong(
                "the adapter changes no layer of this model; give an adapter that was trained on it".into(),
            ));
        }
        Ok(Self { changes, scale })
    }

    /// Bytes that it takes when it is held apart, as f32.
    pub(super) fn bytes(&self) -> u64 {
        let numbers = |tensor: &Tensor| tensor.shape.iter().product::<usize>() as u64;
        let changes = self.changes.iter().flatten().flatten();
        4 * changes.map(|change| numbers(&change.down) + numbers(&change.up)).sum::<u64>()
    }

    /// The change of a product, if it has one.
    pub(super) fn numbers(
        &self,
        layer: usize,
        tensor: LayerTensor,
    ) -> Result<Option<Numbers>, ModelError> {
        let change = site(tensor).and_then(|site| self.changes[layer][site].as_ref());
        let Some(change) = change else { return Ok(None) };
        let (down, rows) = (plain_numbers(&change.down)?, plain_numbers(&change.up)?);
        let (outputs, rank) = (change.up.shape[0], change.up.shape[1]);
        let mut up = vec![0.0; rows.len()];
        for (output, row) in rows.chunks_exact(rank).enumerate() {
            let place = change.reordered.map_or(output, |width| side_by_side(output, width));
            for (j, number) in row.iter().enumerate() {
                up[j * outputs + place] = (self.scale * f64::from(*number)) as f32;
            }
        }
        Ok(Some(Numbers { down, up }))
    }
}

/// Where row `i + half * width / 2` of a head goes when pairs come to lie side by side.
fn side_by_side(row: usize, width: usize) -> usize {
    let (head, within) = (row / width, row % width);
    head * width + 2 * (within % (width / 2)) + within / (width / 2)
}

/// adapter_config.json.
struct Config<'a> {
    json: &'a Value,
    origin: &'a Origin,
}

impl Config<'_> {
    /// A key's value; `null`, `false`, empty lists and objects count as absent.
    fn get(&self, key: &str) -> Option<&Value> {
        self.json.get(key).filter(|value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Array(list) => !list.is_empty(),
            Value::Object(object) => !object.is_empty(),
            _ => true,
        })
    }

    fn refuse_options(&self) -> Result<(), ModelError> {
        let refuse = |what: String| Err(self.origin.unsupported(what));
        match self.json.get("peft_type").and_then(Value::as_str) {
            Some("LORA") => {}
            other => {
                let kind = other.unwrap_or("unnamed");
                return refuse(format!(
                    "an adapter of the kind {kind:?} (peft_type) is not supported; LORA is"
                ));
            }
        }
        match self.get("bias").map(|bias| bias.as_str()) {
            None | Some(Some("none")) => {}
            Some(_) => {
                return refuse("trained biases (bias) are not supported; \"none\" is".into());
            }
        }
        for (key, hint) in [
            ("modules_to_save", "take an adapter without modules saved whole"),
            ("fan_in_fan_out", "take an adapter of a model with linear layers"),
            ("use_dora", "take a plain LoRA adapter"),
            ("lora_bias", "take a plain LoRA adapter"),
            ("rank_pattern", "take an adapter of one rank"),
            ("alpha_pattern", "take an adapter of one lora_alpha"),
            ("target_parameters", "take an adapter of linear layers"),
            ("trainable_token_indices", "take an adapter of linear layers"),
            ("layer_replication", "take an adapter of the model's own layers"),
            ("alora_invocation_tokens", "take a plain LoRA adapter"),
            ("use_qalora", "take a plain LoRA adapter"),
        ] {
            if let Some(value) = self.get(key) {
                return refuse(format!("{key} {value} is not supported; {hint}"));
            }
        }
        Ok(())
    }

    /// The rank, and `lora_alpha / r`, or `lora_alpha / sqrt(r)` where the adapter is rank-stabilised.
    fn rank_and_scale(&self) -> Result<(usize, f64), ModelError> {
        let rank = self.json.get("r").and_then(Value::as_u64);
        let Some(rank) = rank.filter(|rank| (1..=1 << 16).contains(rank)) else {
            return Err(self.origin.wrong("r is missing or no rank from 1 to 65536".into()));
        };
        let alpha = self.json.get("lora_alpha").and_then(Value::as_f64);
        let Some(alpha) = alpha.filter(|alpha| alpha.is_finite()) else {
            return Err(self.origin.wrong("lora_alpha is missing or no number".into()));
        };
        let stabilised = self.get("use_rslora").is_some();
        let divisor = if stabilised { (rank as f64).sqrt() } else { rank as f64 };
        Ok((rank as usize, alpha / divisor))
    }

    /// The modules that must be changed in every layer; none where the file leaves it to a pattern, or
    /// names some layers only.
    fn modules(&self) -> Result<Vec<LayerTensor>, ModelError> {
        let Some(list) = self.get("target_modules").and_then(Value::as_array) else {
            return Ok(Vec::new());
        };
        let mut wanted = Vec::new();
        for name in list {
            // A name may be that of a module with what it stands in.
            let last = name.as_str().and_then(|name| name.rsplit('.').next());
            match SITES.into_iter().find(|site| Some(module(*site).as_str()) == last) {
                Some(site) => wanted.push(site),
                None => {
                    let known = SITES.map(module).join(", ");
                    return Err(self.origin.unsupported(format!(
                        "a change of {name} (target_modules) is not supported; changes of {known} are"
                    )));
                }
            }
        }
        let some_layers = self.get("layers_to_transform").is_some()
            || list.iter().any(|name| name.as_str().is_some_and(|name| name.contains('.')));
        Ok(if some_layers { Vec::new() } else { wanted })
    }
}

/// Reads an adapter's tensors and remembers which.
struct Reader<'a> {
    files: &'a AdapterFiles,
    rank: usize,
    used: BTreeSet<String>,
}

impl Reader<'_> {
    fn layer(
        &mut self,
        layer: usize,
        spec: &ModelSpec,
        names: Names,
        wanted: &[LayerTensor],
    ) -> Result<[Option<Change>; SITES.len()], ModelError> {
        let mut changes = [const { None }; SITES.len()];
        for (change, site) in changes.iter_mut().zip(SITES) {
            let name = Names::Checkpoint.layer(layer, site);
            let name = name.strip_suffix(".weight").unwrap_or(&name);
            let [down, up] =
                ["A", "B"].map(|letter| format!("{PREFIX}{name}.lora_{letter}.weight"));
            let there = |name: &str| self.files.tensor(name).is_some();
            if !there(&down) && !there(&up) && !wanted.contains(&site) {
                continue;
            }
            let [outputs, inputs] = spec.shape(site);
            let pairs = spec.rope.pairing == Pairing::Interleaved && names == Names::Gguf;
            let turned = matches!(site, LayerTensor::Query | LayerTensor::Key);
            *change = Some(Change {
                down: self.tensor(down, [self.rank, inputs])?,
                up: self.tensor(up, [outputs, self.rank])?,
                reordered: (pairs && turned).then_some(spec.head_dim),
            });
        }
        Ok(changes)
    }

    fn tensor(&mut self, name: String, expected: [usize; 2]) -> Result<Tensor, ModelError> {
        let file = self.files.folder().join("adapter_model.safetensors");
        let Some(tensor) = self.files.tensor(&name) else {
            return Err(ModelError::MissingTensor { file, tensor: name });
        };
        if tensor.shape != expected {
            let (found, expected) = (tensor.shape, expected.to_vec());
            return Err(ModelError::Shape { file, tensor: name, found, expected });
        }
        self.used.insert(name);
        Ok(tensor)
    }

    fn refuse_the_rest(&self) -> Result<(), ModelError> {
        let mut rest = self.files.tensor_names().filter(|name| !self.used.contains(*name));
        let Some(first) = rest.next() else { return Ok(()) };
        Err(ModelError::unsupported(format!(
            "{}: tensor {first} is no change of a product of this model's layers, so results would not \
             be right; take an adapter that was trained on it and changes nothing else",
            self.files.folder().display()
        )))
    }
}
