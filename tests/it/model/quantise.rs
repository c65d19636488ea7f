//! Quantising at load: the same bits as from a file that was quantised before, and what is told.

use super::oracle::{expected, reference_logits, run, worst_share};
use super::tiny::{Numbers, Tiny, code, open};
use super::{oracle, pages, rows};
use crate::support::GgufBuilder;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use unsay::device::KvType;
use unsay::device::cpu::Cpu;
use unsay::model::{Batch, Decoder, Footprint, LoadOptions, Quantise, Transformer};
use unsay::store::{ModelFiles, SafetensorsModel, WeightType};

const ASKED: [(Quantise, WeightType, GgmlDType); 3] = [
    (Quantise::Q8_0, WeightType::Q8_0, GgmlDType::Q8_0),
    (Quantise::Q4K, WeightType::Q4_K, GgmlDType::Q4K),
    (Quantise::Q6K, WeightType::Q6_K, GgmlDType::Q6K),
];

fn options(quantise: Quantise) -> LoadOptions {
    let quantise = Some(quantise);
    LoadOptions { kv: KvType::F32, pages: 64, quantise, ..LoadOptions::default() }
}

/// Logits of a sequence, quantised at load.
fn quantised(files: &ModelFiles, quantise: Quantise, ids: &[u32]) -> Vec<Vec<f32>> {
    let cpu = Cpu::new(2).unwrap();
    let mut model = Transformer::load_with(cpu, files, &options(quantise)).unwrap();
    let table = pages(0, ids.len().div_ceil(16));
    model.forward(&Batch { rows: &rows(0, 0, ids), tables: &[&table] }).unwrap();
    let all: Vec<usize> = (0..ids.len()).collect();
    super::logits(&mut model, &table, &all)
}

/// A small f32 model's file with its matrices quantised by candle.
fn quantised_file(tiny: &Tiny, kind: WeightType, ggml: GgmlDType) -> ModelFiles {
    let ModelFiles::Gguf(plain) = tiny.files() else { panic!("a GGUF file") };
    let key = |name: &str| format!("{}.{name}", tiny.architecture);
    let metadata = plain.metadata();
    let mut file = GgufBuilder::default().string("general.architecture", tiny.architecture);
    for name in metadata.keys() {
        if let Ok(number) = metadata.u32(name) {
            file = file.u32(name, number);
        } else if let Ok(number) = metadata.f32(name) {
            file = file.raw(name, GgufBuilder::F32, &number.to_le_bytes());
        }
    }
    assert!(metadata.contains(&key("block_count")));
    for name in plain.tensor_names() {
        let tensor = plain.tensor(name).unwrap();
        let shape: Vec<u64> = tensor.shape.iter().map(|&n| n as u64).collect();
        file = match tensor.shape[..] {
            [_] => file.tensor(name, 0, &shape, tensor.bytes()),
            _ => {
                let numbers: Vec<f32> = tensor
                    .bytes()
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect();
                let numbers =
                    Tensor::from_vec(numbers, tensor.shape.clone(), &Device::Cpu).unwrap();
                let whole = QTensor::quantize(&numbers, ggml).unwrap();
                file.tensor(name, code(kind), &shape, &whole.data().unwrap())
            }
        };
    }
    open(&file)
}

#[test]
fn quantised_at_load_has_the_bits_of_a_quantised_file() {
    for (asked, kind, ggml) in ASKED {
        for architecture in ["llama", "qwen2", "qwen3"] {
            // Rows of whole blocks of 256, and a vocabulary that fills no group of eight.
            let sizes = Tiny::new(architecture, WeightType::Q4_K);
            let tiny = Tiny { kind: WeightType::F32, ..sizes };
            let ids = Numbers(8).ids(45, tiny.vocab);
            let all: Vec<usize> = (0..ids.len()).collect();
            let file = quantised_file(&tiny, kind, ggml);
            let found = quantised(&tiny.files(), asked, &ids);
            assert!(found == run(&file, KvType::F32, &ids, &all), "{architecture} {kind:?}");
            let exact = worst_share(&found, &reference_logits(&file, &ids));
            assert!(exact < 3e-2, "{architecture} {kind:?}: {exact} off dequantised f32");
            let lost = worst_share(&found, &reference_logits(&tiny.files(), &ids));
            println!("{architecture} {kind:?}: {exact:.1e} off dequantised, {lost:.1e} off plain");
            let bound = if kind == WeightType::Q4_K { 0.3 } else { 0.08 };
            assert!(lost < bound, "{architecture} {kind:?}: {lost} of the range lost");
        }
    }
}

#[test]
fn what_a_type_cannot_hold_falls_back_and_is_told_and_planned() {
    // Rows of 64 numbers, and of 112 in the last product of a layer.
    let folder = oracle("qwen2_untied");
    let files = ModelFiles::Safetensors(SafetensorsModel::open(&folder).unwrap());
    let footprint = Footprint::of(&files, &options(Quantise::Q4K)).unwrap();
    let told = footprint.quantised;
    assert_eq!((told.as_asked, told.as_q8_0, told.plain, told.were_quantised), (0, 14, 2, 0));
    let line = told.line().unwrap();
    assert!(
        line.contains("0 to Q4_K, 14 to Q8_0 (rows that are no whole blocks of 256)"),
        "{line}"
    );
    assert!(line.contains("2 left as they are"), "{line}");
    // Panels of Q8_0 take 34 bytes for 32 weights; what stays is still mapped.
    let (h, q, kv, f, v) = (64, 64, 32, 112, 96);
    let quantised = 2 * h * v + 2 * (h * (q + 2 * kv + 2 * f) + q * h);
    let vectors = 4 * (5 * h + 2 * (q + 2 * kv));
    assert_eq!(footprint.held_weights as usize, quantised / 32 * 34 + vectors);
    assert_eq!(footprint.mapped_weights as usize, 2 * 4 * h * f);
    let base = Footprint::of(&files, &LoadOptions::default()).unwrap();
    assert_eq!(base.quantised.line(), None);
    // Near to what PyTorch says of the whole weights.
    let wanted = expected(&folder);
    let ids = &wanted.ids[..256];
    let found = quantised_at(&files, ids, &wanted.positions);
    let share = worst_share(&found, &wanted.logits[..found.len()]);
    assert!(share < 0.1, "{share} of the range");
}

/// Logits at those of the positions that a sequence has.
fn quantised_at(files: &ModelFiles, ids: &[u32], positions: &[usize]) -> Vec<Vec<f32>> {
    let all = quantised(files, Quantise::Q4K, ids);
    positions.iter().filter(|&&p| p < ids.len()).map(|&p| all[p].clone()).collect()
}

#[test]
fn matrices_in_block_formats_stay_as_they_are() {
    // The embedding is plain, and all others are not.
    let tiny = Tiny { poison: Some((5, 0.25)), ..Tiny::new("llama", WeightType::Q5_1) };
    let told = Footprint::of(&tiny.files(), &options(Quantise::Q8_0)).unwrap().quantised;
    assert_eq!((told.as_asked, told.were_quantised), (1, 15));
    assert!(told.line().unwrap().contains("15 left as they are (in a block format already)"));
    assert!(!quantised(&tiny.files(), Quantise::Q8_0, &Numbers(8).ids(20, 77)).is_empty());
}

#[test]
fn a_model_that_is_quantised_already_is_not_quantised_again() {
    let files = Tiny::new("llama", WeightType::Q5_1).files();
    let options = options(Quantise::Q4K);
    let planned = Footprint::of(&files, &options).unwrap_err();
    let loaded = Transformer::load_with(Cpu::new(1).unwrap(), &files, &options).err().unwrap();
    for said in [planned.to_string(), loaded.to_string()] {
        for word in ["tiny.gguf", "all 16 matrices are quantised already", "Q4_K", "--quantise"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

#[test]
fn weights_that_are_not_finite_are_not_quantised() {
    let tiny = Tiny { poison: Some((5, f32::NAN)), ..Tiny::new("llama", WeightType::F32) };
    let (cpu, options) = (Cpu::new(2).unwrap(), options(Quantise::Q8_0));
    let said = Transformer::load_with(cpu, &tiny.files(), &options).err().unwrap();
    let said = said.to_string();
    for word in ["token_embd.weight", "row 5 holds NaN", "Q8_0", "fetch"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}
