//! LoRA adapters with random numbers, written as PEFT writes them.

use super::tiny::{Numbers, Tiny};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use std::path::Path;
use unsay::store::AdapterFiles;

/// A module of a layer, and the outputs and inputs of its product.
pub type Module = (&'static str, usize, usize);

/// The seven modules of a model of these sizes.
pub fn modules(
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    ffn: usize,
) -> [Module; 7] {
    let (q, kv) = (heads * head_dim, kv_heads * head_dim);
    [
        ("self_attn.q_proj", q, hidden),
        ("self_attn.k_proj", kv, hidden),
        ("self_attn.v_proj", kv, hidden),
        ("self_attn.o_proj", hidden, q),
        ("mlp.gate_proj", ffn, hidden),
        ("mlp.up_proj", ffn, hidden),
        ("mlp.down_proj", hidden, ffn),
    ]
}

/// The modules of a small model.
pub fn modules_of(tiny: &Tiny) -> [Module; 7] {
    modules(tiny.hidden, tiny.heads, tiny.kv_heads, tiny.head_dim, tiny.ffn)
}

/// An adapter before it is written.
#[derive(Clone)]
pub struct Lora {
    pub config: Value,
    /// By name: shape and numbers.
    pub tensors: Vec<(String, [usize; 2], Vec<f32>)>,
}

impl Lora {
    /// An adapter of some modules of every layer.
    pub fn random(layers: usize, modules: &[Module], rank: usize, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let mut tensors = Vec::new();
        for layer in 0..layers {
            for (module, outputs, inputs) in modules {
                let name = |letter: &str| {
                    format!("base_model.model.model.layers.{layer}.{module}.lora_{letter}.weight")
                };
                let mut even =
                    |len: usize, reach: f32| (0..len).map(|_| reach * numbers.even()).collect();
                let reach = 1.7 / (*inputs as f32).sqrt();
                tensors.push((name("A"), [rank, *inputs], even(rank * inputs, reach)));
                tensors.push((name("B"), [*outputs, rank], even(outputs * rank, 0.5)));
            }
        }
        let names: Vec<&str> =
            modules.iter().filter_map(|(module, ..)| module.split('.').nth(1)).collect();
        let config = json!({
            "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": names,
            "bias": "none", "fan_in_fan_out": false, "modules_to_save": null, "use_rslora": false,
        });
        Self { config, tensors }
    }

    /// The scale that its configuration gives it.
    pub fn scale(&self) -> f64 {
        let (r, alpha) = (self.config["r"].as_f64().unwrap(), &self.config["lora_alpha"]);
        let stabilised = self.config["use_rslora"] == json!(true);
        alpha.as_f64().unwrap() / if stabilised { r.sqrt() } else { r }
    }

    /// A tensor's shape and numbers.
    pub fn tensor(&self, name: &str) -> Option<([usize; 2], &[f32])> {
        let found = self.tensors.iter().find(|(of, ..)| of == name)?;
        Some((found.1, &found.2))
    }

    /// `W + scale · B A` of a module of a layer, row by row, in f64 and rounded once; `W` itself where
    /// the adapter leaves it.
    pub fn merged(&self, layer: usize, module: &str, weight: &[f32]) -> Vec<f32> {
        let name = |letter: &str| {
            format!("base_model.model.model.layers.{layer}.{module}.lora_{letter}.weight")
        };
        let (Some((shape, down)), Some((_, up))) =
            (self.tensor(&name("A")), self.tensor(&name("B")))
        else {
            return weight.to_vec();
        };
        let [rank, inputs] = shape;
        let sum = |at: usize| -> f64 {
            let (row, column) = (at / inputs, at % inputs);
            let product =
                |j: usize| f64::from(up[row * rank + j]) * f64::from(down[j * inputs + column]);
            f64::from(weight[at]) + self.scale() * (0..rank).map(product).sum::<f64>()
        };
        (0..weight.len()).map(|at| sum(at) as f32).collect()
    }

    /// Writes it into a folder.
    pub fn write(&self, folder: &Path) {
        std::fs::write(folder.join("adapter_config.json"), self.config.to_string()).unwrap();
        let bytes: Vec<Vec<u8>> = self
            .tensors
            .iter()
            .map(|(_, _, numbers)| numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
            .collect();
        let views = self.tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
            (name.clone(), TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
        });
        let path = folder.join("adapter_model.safetensors");
        safetensors::serialize_to_file(views, None, &path).unwrap();
    }

    /// Writes it and maps it; the mapping outlives the files' names.
    pub fn files(&self) -> AdapterFiles {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        AdapterFiles::open(folder.path()).unwrap()
    }
}
