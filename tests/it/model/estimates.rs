//! Estimates of memory by sizes alone, against the footprints of files.

use crate::model::tiny::Tiny;
use crate::support;
use unsay::model::{Footprint, LoadOptions, ModelSpec, Quantise, Recipe};
use unsay::store::{Cache, Gguf, ModelFiles, Shape, ShapeFamily, WeightType, manifests};

#[test]
fn an_estimate_is_the_footprint_of_the_files_that_it_is_of() {
    let families = [
        ("llama", ShapeFamily::Llama),
        ("qwen2", ShapeFamily::Qwen2),
        ("qwen3", ShapeFamily::Qwen3),
    ];
    for (architecture, family) in families {
        for (kind, name) in [
            (WeightType::F16, "F16"),
            (WeightType::BF16, "BF16"),
            (WeightType::Q8_0, "Q8_0"),
            (WeightType::Q6_K, "q6_k"),
        ] {
            for tied in [false, true] {
                let tiny = Tiny { tied, ..Tiny::new(architecture, kind) };
                let shape = Shape {
                    family,
                    layers: tiny.layers as u32,
                    hidden: tiny.hidden as u32,
                    heads: tiny.heads as u32,
                    kv_heads: tiny.kv_heads as u32,
                    head_dim: tiny.head_dim as u32,
                    ffn: tiny.ffn as u32,
                    vocab: tiny.vocab as u32,
                    context: 1024,
                    tied_head: tied,
                };
                let (spec, recipe) =
                    (ModelSpec::of_shape(&shape).unwrap(), Recipe::of(name).unwrap());
                let plain = kind.block_len() == 1;
                let ways: &[Option<Quantise>] = if plain {
                    &[None, Some(Quantise::Q8_0), Some(Quantise::Q4K)]
                } else {
                    &[None]
                };
                for &quantise in ways {
                    let options =
                        LoadOptions { quantise, context: Some(500), ..Default::default() };
                    let whole = Footprint::of(&tiny.files(), &options).unwrap();
                    let estimate = Footprint::estimated(spec.clone(), recipe, &options).unwrap();
                    assert_eq!(estimate, whole, "{architecture} {name} {tied} {quantise:?}");
                }
            }
        }
    }
}

#[test]
fn the_default_models_estimate_is_its_footprint() {
    let files = ModelFiles::Gguf(Gguf::open(&support::default_model()).unwrap());
    let manifest = &manifests(&Cache::at("/nowhere")).unwrap()["smollm2-135m-instruct"];
    let spec = ModelSpec::of_shape(manifest.shape.as_ref().unwrap()).unwrap();
    let recipe = Recipe::of(&manifest.variants[0].quantisation).unwrap();
    let options = LoadOptions::default();
    let estimate = Footprint::estimated(spec.clone(), recipe, &options).unwrap();
    assert_eq!(estimate, Footprint::of(&files, &options).unwrap());
    // What lies beside the weights in the file is its tokenizer.
    let beside = files.bytes_mapped() - spec.file_bytes(recipe);
    assert!((1_000_000..3_000_000).contains(&beside), "{beside}");
}
