//! What a model takes before its files are here: from the sizes that a manifest gives, and the types
//! that llama.cpp's quantiser gives to each matrix of a quantisation. Files hold their tokenizer
//! beside that (2 to 12 MB), and converters change their minds, so these are estimates; the plan of a
//! model whose files are here never uses them.

use super::rope::{RopeOptions, RopeScaling};
use super::spec::Origin;
use super::{Family, LayerTensor, ModelError, ModelSpec};
use crate::device::Pairing;
use crate::store::{Shape, ShapeFamily, WeightType};
use std::path::Path;

/// Which type each matrix of a quantisation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    base: WeightType,
    /// Values and down projections of some layers.
    finer: WeightType,
    /// The head; the embedding where it is the head too.
    head: WeightType,
}

impl Recipe {
    /// The recipe of a quantisation by its name, in any case; None where it is not known.
    pub fn of(quantisation: &str) -> Option<Self> {
        use WeightType as T;
        let (base, finer, head) = match quantisation.to_ascii_uppercase().as_str() {
            "F32" => (T::F32, T::F32, T::F32),
            "F16" => (T::F16, T::F16, T::F16),
            "BF16" => (T::BF16, T::BF16, T::BF16),
            "Q4_0" => (T::Q4_0, T::Q4_0, T::Q6_K),
            "Q4_1" => (T::Q4_1, T::Q4_1, T::Q6_K),
            "Q5_0" => (T::Q5_0, T::Q5_0, T::Q6_K),
            "Q5_1" => (T::Q5_1, T::Q5_1, T::Q6_K),
            "Q8_0" => (T::Q8_0, T::Q8_0, T::Q8_0),
            "Q4_K_M" => (T::Q4_K, T::Q6_K, T::Q6_K),
            "Q5_K_M" => (T::Q5_K, T::Q6_K, T::Q6_K),
            "Q6_K" => (T::Q6_K, T::Q6_K, T::Q6_K),
            _ => return None,
        };
        Some(Self { base, finer, head })
    }

    /// The type of the embedding; of the head, where that is one of its own.
    pub(super) fn table(self, spec: &ModelSpec, is_head: bool) -> WeightType {
        let kind = if is_head || spec.tied_head { self.head } else { self.base };
        held_by(kind, spec.hidden)
    }

    /// The type of a layer's matrix.
    pub(super) fn layer(self, spec: &ModelSpec, layer: usize, tensor: LayerTensor) -> WeightType {
        let finer = self.finer != self.base && is_finer(layer, spec.layers);
        // In models of 80 layers many query heads share a value, which is worth a finer type.
        let shared = self.base == WeightType::Q4_K && spec.layers == 80;
        let kind = match tensor {
            LayerTensor::Value if finer => self.finer,
            LayerTensor::Value if shared => WeightType::Q5_K,
            LayerTensor::Down if finer => self.finer,
            _ => self.base,
        };
        held_by(kind, spec.shape(tensor)[1])
    }
}

/// The first and the last eighth of the layers, and every third between them.
fn is_finer(layer: usize, layers: usize) -> bool {
    let eighth = layers / 8;
    layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2
}

/// The type that a row of so many numbers takes where it is no whole blocks of the one wanted.
fn held_by(kind: WeightType, inputs: usize) -> WeightType {
    use WeightType as T;
    if inputs.is_multiple_of(kind.block_len()) {
        return kind;
    }
    let smaller = match kind {
        T::Q4_K => T::Q5_0,
        T::Q5_K => T::Q5_1,
        T::Q6_K => T::Q8_0,
        _ => T::F16,
    };
    if inputs.is_multiple_of(smaller.block_len()) { smaller } else { T::F16 }
}

impl ModelSpec {
    /// The options that a manifest's sizes stand for. What they do not say (epsilon, RoPE's base)
    /// takes no memory.
    pub fn of_shape(shape: &Shape) -> Result<Self, ModelError> {
        let (family, qkv_bias, qk_norm) = match shape.family {
            ShapeFamily::Llama => (Family::Llama, false, false),
            ShapeFamily::Qwen2 => (Family::Qwen2, true, false),
            ShapeFamily::Qwen3 => (Family::Qwen3, false, true),
        };
        let spec = Self {
            family,
            layers: shape.layers as usize,
            hidden: shape.hidden as usize,
            heads: shape.heads as usize,
            kv_heads: shape.kv_heads as usize,
            head_dim: shape.head_dim as usize,
            ffn: shape.ffn as usize,
            vocab: shape.vocab as usize,
            norm_eps: 1e-5,
            rope: RopeOptions {
                base: 1e4,
                pairing: Pairing::Half,
                scaling: RopeScaling::None,
                divisors: None,
            },
            qkv_bias,
            qk_norm,
            tied_head: shape.tied_head,
            context_length: shape.context as usize,
        };
        spec.checked(0, &Origin::config(Path::new("shape")))
    }

    /// Every matrix that is held, with its type in a file of this recipe: `[outputs, inputs]`.
    pub(super) fn matrices(
        &self,
        recipe: Recipe,
    ) -> impl Iterator<Item = (WeightType, [usize; 2])> {
        use LayerTensor as T;
        let table = [self.vocab, self.hidden];
        let embedding = (recipe.table(self, false), table);
        let head = (!self.tied_head).then(|| (recipe.table(self, true), table));
        let kinds = [T::Query, T::Key, T::Value, T::Output, T::Gate, T::Up, T::Down];
        let layers = (0..self.layers).flat_map(move |layer| {
            kinds.map(|tensor| (recipe.layer(self, layer, tensor), self.shape(tensor)))
        });
        std::iter::once(embedding).chain(head).chain(layers)
    }

    /// Numbers of all norms and biases.
    pub(super) fn vector_numbers(&self) -> usize {
        use LayerTensor as T;
        let norms = [T::AttentionNorm, T::FeedForwardNorm];
        let biases = [T::QueryBias, T::KeyBias, T::ValueBias];
        let head_norms = [T::QueryNorm, T::KeyNorm];
        let len = |tensors: &[T]| tensors.iter().map(|&t| self.shape(t)[1]).sum::<usize>();
        let mut layer = len(&norms);
        layer += if self.qkv_bias { len(&biases) } else { 0 };
        layer += if self.qk_norm { len(&head_norms) } else { 0 };
        self.layers * layer + self.hidden
    }

    /// Numbers of all weights; a head that is the embedding counts once.
    pub fn parameters(&self) -> u64 {
        let any = Recipe { base: WeightType::F16, finer: WeightType::F16, head: WeightType::F16 };
        let matrices = self.matrices(any).map(|(_, [outputs, inputs])| (outputs * inputs) as u64);
        matrices.sum::<u64>() + self.vector_numbers() as u64
    }

    /// Bytes of all weights in files of this recipe, the tokenizer left out.
    pub fn file_bytes(&self, recipe: Recipe) -> u64 {
        let bytes = |(kind, [outputs, inputs]): (WeightType, [usize; 2])| {
            (outputs * (inputs / kind.block_len()) * kind.block_bytes()) as u64
        };
        let plain = match recipe.base {
            kind @ (WeightType::F16 | WeightType::BF16) => kind.block_bytes(),
            _ => 4,
        };
        self.matrices(recipe).map(bytes).sum::<u64>() + (plain * self.vector_numbers()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> ModelSpec {
        let cache = crate::store::Cache::at("/nowhere");
        let manifests = crate::store::manifests(&cache).unwrap();
        ModelSpec::of_shape(manifests[name].shape.as_ref().unwrap()).unwrap()
    }

    /// Published numbers of parameters, in billions.
    #[test]
    fn shapes_have_as_many_parameters_as_was_published() {
        for (name, billions, within) in [
            ("smollm2-135m-instruct", 0.1345, 0.0005),
            ("smollm2-360m-instruct", 0.362, 0.0005),
            ("smollm2-1.7b-instruct", 1.71, 0.005),
            ("llama-3-8b-instruct", 8.03, 0.005),
            ("llama-3.1-8b-instruct", 8.03, 0.005),
            ("llama-3.2-1b-instruct", 1.24, 0.005),
            ("llama-3.2-3b-instruct", 3.21, 0.005),
            ("llama-3.3-70b-instruct", 70.6, 0.05),
            ("qwen2.5-0.5b-instruct", 0.49, 0.005),
            ("qwen2.5-1.5b-instruct", 1.54, 0.005),
            ("qwen2.5-7b-instruct", 7.61, 0.01),
            ("qwen2.5-14b-instruct", 14.7, 0.1),
            ("qwen2.5-32b-instruct", 32.5, 0.3),
            ("qwen2.5-72b-instruct", 72.7, 0.05),
            ("qwen2.5-coder-7b-instruct", 7.61, 0.01),
            ("qwen3-4b", 4.0, 0.05),
            ("qwen3-8b", 8.2, 0.05),
            ("qwen3-14b", 14.8, 0.05),
        ] {
            let found = spec(name).parameters() as f64 / 1e9;
            assert!((found - billions).abs() <= within, "{name}: {found} where {billions} is said");
        }
    }

    /// Sizes of published files, which hold 2 to 12 MB beside the weights.
    #[test]
    fn estimates_are_the_sizes_of_published_files_but_for_what_lies_beside_the_weights() {
        for (name, quantisation, bytes) in [
            ("llama-3.1-8b-instruct", "Q5_K_M", 5_732_987_424),
            ("llama-3.1-8b-instruct", "Q8_0", 8_540_770_848),
            ("qwen2.5-14b-instruct", "Q8_0", 15_701_598_336),
            ("qwen2.5-32b-instruct", "Q6_K", 26_886_155_136),
            ("qwen3-4b", "Q4_K_M", 2_497_280_256),
            ("qwen3-14b", "Q4_K_M", 9_001_752_960),
        ] {
            let estimate = spec(name).file_bytes(Recipe::of(quantisation).unwrap());
            let beside = bytes - estimate as i64;
            assert!((2_000_000..12_000_000).contains(&beside), "{name} {quantisation}: {beside}");
        }
        // Sizes that are published with three digits.
        for (name, quantisation, megabytes) in [
            ("smollm2-360m-instruct", "Q4_K_M", 271.0),
            ("smollm2-360m-instruct", "Q6_K", 367.0),
            ("smollm2-360m-instruct", "Q8_0", 386.0),
            ("smollm2-135m-instruct", "Q4_1", 98.4),
            ("qwen2.5-7b-instruct", "Q4_K_M", 4680.0),
            ("qwen2.5-7b-instruct", "Q6_K", 6250.0),
            ("llama-3-8b-instruct", "Q4_K_M", 4920.0),
            ("llama-3.3-70b-instruct", "Q4_K_M", 42_500.0),
            ("qwen2.5-72b-instruct", "Q4_K_M", 47_400.0),
            ("qwen3-8b", "Q6_K", 6730.0),
        ] {
            let estimate = spec(name).file_bytes(Recipe::of(quantisation).unwrap()) as f64 / 1e6;
            let ratio = estimate / megabytes;
            assert!((0.97..1.005).contains(&ratio), "{name} {quantisation}: {estimate} MB");
        }
    }

    #[test]
    fn every_quantisation_of_a_manifest_has_a_recipe() {
        let cache = crate::store::Cache::at("/nowhere");
        for manifest in crate::store::manifests(&cache).unwrap().values() {
            for variant in &manifest.variants {
                assert!(Recipe::of(&variant.quantisation).is_some(), "{}", variant.quantisation);
            }
        }
        assert_eq!(Recipe::of("IQ2_XXS"), None);
        assert_eq!(Recipe::of("q4_k_m"), Recipe::of("Q4_K_M"));
    }
}
