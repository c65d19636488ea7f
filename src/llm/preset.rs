//! Presets: the models that fit an amount of memory, a generator beside a verifier, by the sizes of
//! their manifests and the planning of the engine.
//!
//! The largest generator that fits is taken, then the largest verifier beside it that is no larger
//! than the generator, then the finest quantisations. Verifiers that come as plain checkpoints may be
//! quantised as they are loaded.

use std::collections::BTreeMap;

use super::host::TOKENIZER_BYTES;
use crate::device::{KvType, PAGE_POSITIONS};
use crate::engine::plan::{Budget, Demand, Machine, MemorySize, Plan};
use crate::model::{Footprint, LoadOptions, ModelError, ModelSpec, Quantise, Recipe};
use crate::store::{Manifest, Role, Variant};

/// Positions of a dialogue that a generator gets in a preset, where it was trained for so many.
pub const GENERATOR_CONTEXT: usize = 8_192;

/// Positions that a verifier gets.
pub const VERIFIER_CONTEXT: usize = 4_096;

/// A model of a preset.
#[derive(Clone, Debug)]
pub struct Choice {
    /// As `--model` takes it.
    pub name: String,
    pub parameters: u64,
    /// How a plain checkpoint is quantised as it is loaded.
    pub quantise: Option<Quantise>,
    /// Positions of a dialogue.
    pub context: usize,
    demand: Demand,
}

/// A generator and a verifier that fit together.
#[derive(Clone, Debug)]
pub struct Preset {
    pub generator: Choice,
    pub verifier: Choice,
    /// What both take.
    pub plan: Plan,
}

impl Choice {
    /// Bytes of the weights as they are held.
    pub fn weights(&self) -> u64 {
        self.demand.footprint.held_weights + self.demand.footprint.mapped_weights
    }

    /// Bytes of the pages of one dialogue of full length.
    fn pages(&self) -> u64 {
        let pages = self.demand.footprint.context.div_ceil(PAGE_POSITIONS);
        self.demand.footprint.page_bytes * pages as u64
    }
}

/// The preset for a machine, or for a card, of so much memory; None where nothing fits.
pub fn recommend(
    manifests: &BTreeMap<String, Manifest>,
    memory: u64,
) -> Result<Option<Preset>, ModelError> {
    let (mut generators, mut verifiers) = (Vec::new(), Vec::new());
    for manifest in manifests.values() {
        match manifest.role {
            Role::Generator => generators.extend(choices(manifest, GENERATOR_CONTEXT)?),
            Role::Verifier => verifiers.extend(choices(manifest, VERIFIER_CONTEXT)?),
        }
    }
    let rank = |generator: &Choice, verifier: &Choice| {
        let sizes = (generator.parameters, verifier.parameters);
        (sizes, generator.weights(), verifier.weights())
    };
    let pairs = generators.iter().flat_map(|generator| {
        let allowed = verifiers.iter().filter(|v| v.parameters <= generator.parameters);
        allowed.map(move |verifier| (generator, verifier))
    });
    let mut pairs: Vec<_> = pairs.collect();
    pairs.sort_by_key(|(generator, verifier)| std::cmp::Reverse(rank(generator, verifier)));
    Ok(pairs.into_iter().find_map(|(generator, verifier)| {
        let plan = planned(generator, verifier, memory)?;
        Some(Preset { generator: generator.clone(), verifier: verifier.clone(), plan })
    }))
}

/// The plan of both with pages for one dialogue of full length each, or None where that does not fit.
fn planned(generator: &Choice, verifier: &Choice, memory: u64) -> Option<Plan> {
    let machine = Machine { total: memory, free: memory, group: None };
    let page_memory = Some(MemorySize(generator.pages() + verifier.pages()));
    let budget = Budget { memory: None, page_memory };
    let demands = [generator.demand.clone(), verifier.demand.clone()];
    Plan::of(&demands, &budget, Some(&machine)).ok()
}

/// Every way to hold a model of which sizes and recipes are known.
fn choices(manifest: &Manifest, context: usize) -> Result<Vec<Choice>, ModelError> {
    let Some(shape) = &manifest.shape else { return Ok(Vec::new()) };
    let spec = ModelSpec::of_shape(shape)?;
    let mut all = Vec::new();
    for (index, variant) in manifest.variants.iter().enumerate() {
        let Some(recipe) = Recipe::of(&variant.quantisation) else { continue };
        for &quantise in ways(variant) {
            all.push(choice(manifest, index, &spec, recipe, quantise, context)?);
        }
    }
    Ok(all)
}

/// How a variant may be quantised as it is loaded.
fn ways(variant: &Variant) -> &'static [Option<Quantise>] {
    let is_plain = ["F32", "F16", "BF16"].iter().any(|plain| variant.quantisation == *plain);
    match is_plain {
        true => &[None, Some(Quantise::Q8_0), Some(Quantise::Q6K), Some(Quantise::Q4K)],
        false => &[None],
    }
}

fn choice(
    manifest: &Manifest,
    variant: usize,
    spec: &ModelSpec,
    recipe: Recipe,
    quantise: Option<Quantise>,
    context: usize,
) -> Result<Choice, ModelError> {
    let context = spec.context_length.min(context);
    let options = LoadOptions {
        context: Some(context),
        pages: context.div_ceil(PAGE_POSITIONS),
        quantise,
        ..LoadOptions::default()
    };
    let footprint = Footprint::estimated(spec.clone(), recipe, &options)?;
    let name = match variant {
        0 => manifest.name.clone(),
        _ => {
            format!("{}:{}", manifest.name, manifest.variants[variant].quantisation.to_lowercase())
        }
    };
    let demand = Demand {
        name: name.clone(),
        footprint,
        kv: KvType::default(),
        context_is_wanted: true,
        beside: TOKENIZER_BYTES * footprint.vocab as u64,
    };
    Ok(Choice { name, parameters: spec.parameters(), quantise, context, demand })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Cache;

    const GB: u64 = 1_000_000_000;

    fn presets(gigabytes: u64) -> Option<Preset> {
        let manifests = crate::store::manifests(&Cache::at("/nowhere")).unwrap();
        recommend(&manifests, gigabytes * GB).unwrap()
    }

    /// The sums by hand: bits of the types, keys and values, and what the plan says beside.
    #[test]
    fn what_is_recommended_fits_the_arithmetic() {
        for gigabytes in [4, 8, 12, 16, 24, 48, 80, 192] {
            let Preset { generator, verifier, plan } = presets(gigabytes).unwrap();
            let memory = gigabytes * GB;
            let kept_for_others = memory / 16;
            assert!(plan.total <= memory - kept_for_others, "{gigabytes}: {}", plan.total);
            let weights = generator.weights() + verifier.weights();
            let pages = generator.pages() + verifier.pages();
            assert_eq!(plan.page_memory, pages, "{gigabytes}");
            let beside = plan.total - weights - pages;
            // Buffers, tables of rotations, logits, tokenizers: no more than this, and not nothing.
            assert!((50_000_000..700_000_000).contains(&beside), "{gigabytes}: {beside}");
            assert!(verifier.parameters <= generator.parameters, "{gigabytes}");
            assert_eq!((generator.context, verifier.context), (8192, 4096), "{gigabytes}");
            for (planned, choice) in plan.models.iter().zip([&generator, &verifier]) {
                assert_eq!(planned.context, choice.context, "{gigabytes}");
            }
        }
    }

    #[test]
    fn presets_of_common_sizes() {
        for (gigabytes, generator, verifier, quantise) in TABLE {
            let found = presets(gigabytes).unwrap();
            let names = (found.generator.name.as_str(), found.verifier.name.as_str());
            assert_eq!(names, (generator, verifier), "{gigabytes} GB");
            assert_eq!(found.verifier.quantise, quantise, "{gigabytes} GB");
            assert_eq!(found.generator.quantise, None, "{gigabytes} GB");
        }
    }

    const PRM_7B: &str = "qwen2.5-math-prm-7b";
    const PRM_1B: &str = "skywork-o1-open-prm-qwen-2.5-1.5b";
    const TABLE: [(u64, &str, &str, Option<Quantise>); 5] = [
        (8, "qwen2.5-7b-instruct:q5_k_m", PRM_1B, Some(Quantise::Q4K)),
        (12, "qwen3-8b", PRM_7B, Some(Quantise::Q4K)),
        (24, "qwen2.5-14b-instruct:q8_0", PRM_7B, Some(Quantise::Q4K)),
        (48, "qwen2.5-32b-instruct:q8_0", PRM_7B, Some(Quantise::Q6K)),
        (80, "qwen2.5-72b-instruct:q6_k", PRM_7B, Some(Quantise::Q6K)),
    ];

    #[test]
    fn more_memory_never_means_a_smaller_generator_and_too_little_means_none() {
        let mut before = 0;
        for gigabytes in 1..100 {
            let Some(preset) = presets(gigabytes) else {
                assert_eq!(before, 0, "{gigabytes}");
                continue;
            };
            assert!(preset.generator.parameters >= before, "{gigabytes}");
            before = preset.generator.parameters;
        }
        assert!(before > 70 * GB);
        assert!(presets(0).is_none());
        let manifests = crate::store::manifests(&Cache::at("/nowhere")).unwrap();
        assert!(recommend(&manifests, 300_000_000).unwrap().is_none());
        assert!(recommend(&BTreeMap::new(), 80 * GB).unwrap().is_none());
    }
}
