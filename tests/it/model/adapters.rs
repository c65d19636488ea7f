//! LoRA adapters against PyTorch and against weights merged by hand; several on one base.

use super::converted::gguf_of;
use super::lora::{Lora, modules};
use super::oracle::{expected, reference_logits, worst_share};
use super::tiny::Numbers;
use super::{oracle, pages, rows};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use std::path::Path;
use unsay::device::cpu::Cpu;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{
    AdapterId, Batch, Decoder, Footprint, LoadOptions, ModelError, Row, Transformer,
};
use unsay::store::{AdapterFiles, ModelFiles, SafetensorsModel};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn options(adapters: Vec<AdapterFiles>, merge: Option<AdapterFiles>) -> LoadOptions {
    LoadOptions { kv: KvType::F32, pages: 64, adapters, merge, ..LoadOptions::default() }
}

fn load(files: &ModelFiles, options: &LoadOptions) -> Transformer<Cpu> {
    Transformer::load_with(Cpu::new(2).unwrap(), files, options).unwrap()
}

/// Logits of every position of a sequence that is read with an adapter or without.
fn run(model: &mut dyn Decoder, ids: &[u32], adapter: Option<AdapterId>) -> Vec<Vec<f32>> {
    let table = pages(0, ids.len().div_ceil(16));
    let rows: Vec<Row> = rows(0, 0, ids).into_iter().map(|row| Row { adapter, ..row }).collect();
    model.forward(&Batch { rows: &rows, tables: &[&table] }).unwrap();
    let all: Vec<usize> = (0..ids.len()).collect();
    super::logits(model, &table, &all)
}

/// PyTorch's trunk and adapter with its head as the first row of a language model's, so that the
/// first logit is `h · head`; the adapter without what it saved of the head.
fn scalar_head(folder: &Path) -> AdapterFiles {
    let from = oracle("lora_scalar_head");
    let text = std::fs::read_to_string(from.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["architectures"] = json!(["LlamaForCausalLM"]);
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let trunk = std::fs::read(from.join("model.safetensors")).unwrap();
    let adapter = std::fs::read(from.join("adapter/adapter_model.safetensors")).unwrap();
    let trunk = SafeTensors::deserialize(&trunk).unwrap();
    let adapter = SafeTensors::deserialize(&adapter).unwrap();
    let mut head = adapter.tensor("base_model.model.score.weight").unwrap().data().to_vec();
    head.resize(96 * 64 * 4, 0);
    let head = TensorView::new(Dtype::F32, vec![96, 64], &head).unwrap();
    let mut tensors = trunk.tensors();
    tensors.push(("lm_head.weight".into(), head));
    safetensors::serialize_to_file(tensors, None, &folder.join("model.safetensors")).unwrap();
    let kept = adapter.tensors().into_iter().filter(|(name, _)| !name.contains("score"));
    let path = folder.join("adapter_model.safetensors");
    safetensors::serialize_to_file(kept, None, &path).unwrap();
    let text = std::fs::read_to_string(from.join("adapter/adapter_config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["modules_to_save"] = Value::Null;
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
    AdapterFiles::open(folder).unwrap()
}

#[test]
fn an_adapter_gives_pytorchs_scores_apart_and_merged_and_on_either_format() {
    let folder = tempfile::tempdir().unwrap();
    let adapter = scalar_head(folder.path());
    let bytes = std::fs::read(oracle("lora_scalar_head").join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let ints = |name: &str| -> Vec<u32> {
        let words = file.tensor(name).unwrap().data().as_chunks::<4>().0.to_vec();
        words.into_iter().map(u32::from_le_bytes).collect()
    };
    let scores = floats(file.tensor("scores").unwrap().data());
    let (ids, ends) = (ints("ids"), ints("ends"));
    let plain = ModelFiles::Safetensors(SafetensorsModel::open(folder.path()).unwrap());
    for files in [plain, gguf_of(folder.path())] {
        for merged in [false, true] {
            let (apart, merge) = match merged {
                false => (vec![adapter.clone()], None),
                true => (Vec::new(), Some(adapter.clone())),
            };
            let mut model = load(&files, &options(apart, merge));
            let number = (!merged).then_some(AdapterId(0));
            for sample in 0..2 {
                let logits = run(&mut model, &ids[48 * sample..48 * (sample + 1)], number);
                for i in 3 * sample..3 * sample + 3 {
                    let score = 1.0 / (1.0 + (-logits[ends[i] as usize][0]).exp());
                    let off = (score - scores[i]).abs();
                    assert!(off < 1e-5, "{} merged {merged}: {off}", files.path().display());
                }
            }
        }
    }
}

/// A checkpoint of these with the adapter's change in its weights, computed by hand.
fn merged_by_hand(name: &str, lora: &Lora) -> ModelFiles {
    let model = SafetensorsModel::open(&oracle(name)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), model.config().to_string()).unwrap();
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = model
        .tensor_names()
        .map(|name| {
            let tensor = model.tensor(name).unwrap();
            let mut numbers = floats(tensor.bytes());
            if let Some((layer, module)) = name
                .strip_prefix("model.layers.")
                .and_then(|rest| rest.strip_suffix(".weight"))
                .and_then(|rest| rest.split_once('.'))
            {
                numbers = lora.merged(layer.parse().unwrap(), module, &numbers);
            }
            let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            (name.to_owned(), tensor.shape, bytes)
        })
        .collect();
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    let path = folder.path().join("model.safetensors");
    safetensors::serialize_to_file(views, None, &path).unwrap();
    ModelFiles::Safetensors(SafetensorsModel::open(folder.path()).unwrap())
}

#[test]
fn adapters_of_every_family_are_what_merged_weights_are() {
    for (name, sizes, rank, some, stabilised) in [
        ("llama_gqa7", modules(112, 7, 1, 16, 112), 3, 0..7, false),
        ("llama_rope_llama3", modules(64, 4, 2, 16, 112), 8, 0..2, true),
        ("qwen2_untied", modules(64, 4, 2, 16, 112), 5, 0..7, true),
        ("qwen3_untied", modules(64, 4, 2, 32, 112), 4, 3..7, false),
    ] {
        let mut lora = Lora::random(2, &sizes[some], rank, 5);
        lora.config["use_rslora"] = json!(stabilised);
        let ids = expected(&oracle(name)).ids[..96].to_vec();
        let wanted = reference_logits(&merged_by_hand(name, &lora), &ids);
        let plain = ModelFiles::Safetensors(SafetensorsModel::open(&oracle(name)).unwrap());
        let base = run(&mut load(&plain, &options(Vec::new(), None)), &ids, None);
        assert!(worst_share(&base, &wanted) > 0.05, "{name}: the adapter changes something");
        for files in [plain, gguf_of(&oracle(name))] {
            let mut apart = load(&files, &options(vec![lora.files()], None));
            let share = worst_share(&run(&mut apart, &ids, Some(AdapterId(0))), &wanted);
            assert!(share < 1e-4, "{name}, apart: {share} of the range");
            assert!(run(&mut apart, &ids, None) == base || matches!(files, ModelFiles::Gguf(_)));
            let mut merged = load(&files, &options(Vec::new(), Some(lora.files())));
            let share = worst_share(&run(&mut merged, &ids, None), &wanted);
            assert!(share < 1e-4, "{name}, merged: {share} of the range");
        }
    }
}

#[test]
fn rows_of_several_adapters_and_of_none_share_a_pass_with_the_bits_of_each_alone() {
    let sizes = modules(64, 4, 2, 32, 112);
    let (one, two) = (Lora::random(2, &sizes, 4, 1), Lora::random(2, &sizes[..3], 9, 2));
    let files = gguf_of(&oracle("qwen3_untied"));
    let options = options(vec![one.files(), two.files()], None);
    let mut model = load(&files, &options);
    let speakers = [None, Some(AdapterId(0)), Some(AdapterId(1)), Some(AdapterId(0))];
    let mut numbers = Numbers(4);
    let ids: Vec<Vec<u32>> = (0..4).map(|_| numbers.ids(37, 96)).collect();
    let alone: Vec<Vec<Vec<f32>>> =
        ids.iter().zip(speakers).map(|(ids, who)| run(&mut model, ids, who)).collect();
    let tables: Vec<Vec<PageId>> = (0..4).map(|slot| pages(10 + 3 * slot, 3)).collect();
    let tables: Vec<&[PageId]> = tables.iter().map(Vec::as_slice).collect();
    let mut mixed: Vec<Row> = (0..4)
        .flat_map(|slot| {
            let rows = rows(slot, 0, &ids[slot]);
            rows.into_iter().map(move |row| Row { adapter: speakers[slot], ..row })
        })
        .collect();
    mixed.sort_by_key(|row| (row.position, row.slot));
    while !mixed.is_empty() {
        let count = mixed.len().min(1 + numbers.below(40));
        model.forward(&Batch { rows: &mixed[..count], tables: &tables }).unwrap();
        mixed.drain(..count);
    }
    let all: Vec<usize> = (0..37).collect();
    for slot in 0..4 {
        assert!(super::logits(&mut model, tables[slot], &all) == alone[slot], "slot {slot}");
    }
    assert!(alone[1] != run(&mut model, &ids[1], None), "the adapter changes something");
    // A number that none has.
    let row = Row { adapter: Some(AdapterId(2)), ..rows(0, 0, &[1])[0] };
    let said = model.forward(&Batch { rows: &[row], tables: &tables }).unwrap_err();
    assert!(
        said.to_string().contains("adapter 2 is asked for; the model was loaded with 2"),
        "{said}"
    );
    let hidden = HiddenAt { page: PageId(0), offset: 0 };
    model.logits(&[hidden], &mut [0.0; 96]).unwrap();
}

#[test]
fn an_adapters_bytes_are_planned_and_its_base_is_there_once() {
    let sizes = modules(64, 4, 2, 16, 112);
    let (one, two) = (Lora::random(2, &sizes, 4, 1), Lora::random(2, &sizes[..3], 9, 2));
    let numbers = |lora: &Lora| lora.tensors.iter().map(|(.., x)| x.len() as u64).sum::<u64>();
    let files = ModelFiles::Safetensors(SafetensorsModel::open(&oracle("qwen2_untied")).unwrap());
    let base = Footprint::of(&files, &options(Vec::new(), None)).unwrap();
    let apart = options(vec![one.files(), two.files()], None);
    let both = Footprint::of(&files, &apart).unwrap();
    assert_eq!(both.adapters, 4 * (numbers(&one) + numbers(&two)));
    assert_eq!(both.without_pages(), base.without_pages() + both.adapters);
    assert_eq!((both.held_weights, both.mapped_weights), (base.held_weights, base.mapped_weights));
    // Merged weights are copies, in whole groups of eight rows.
    let merged = Footprint::of(&files, &options(Vec::new(), Some(one.files()))).unwrap();
    let copies: u64 = sizes.iter().map(|(_, outputs, inputs)| (4 * outputs * inputs) as u64).sum();
    assert_eq!(merged.adapters, 0);
    assert_eq!(merged.held_weights, base.held_weights + 2 * copies);
    assert_eq!(merged.mapped_weights, base.mapped_weights - 2 * copies);
}

/// What is said of an adapter of a small Qwen2.
fn refused(lora: &Lora) -> String {
    let files = ModelFiles::Safetensors(SafetensorsModel::open(&oracle("qwen2_untied")).unwrap());
    let options = options(vec![lora.files()], None);
    let planned = Footprint::of(&files, &options).unwrap_err().to_string();
    let cpu = Cpu::new(1).unwrap();
    let loaded = Transformer::load_with(cpu, &files, &options).err().unwrap().to_string();
    let name = |said: &str| said.replace(|c: char| c.is_ascii_alphanumeric(), "");
    assert_eq!(name(&planned), name(&loaded), "planning and loading say the same");
    loaded
}

#[test]
fn adapters_that_are_not_run_are_refused_by_name() {
    let sizes = modules(64, 4, 2, 16, 112);
    let lora = Lora::random(2, &sizes, 4, 1);
    for (key, value, word) in [
        ("peft_type", json!("IA3"), "IA3"),
        ("bias", json!("lora_only"), "bias"),
        ("modules_to_save", json!(["score"]), "modules_to_save"),
        ("fan_in_fan_out", json!(true), "fan_in_fan_out"),
        ("use_dora", json!(true), "use_dora"),
        ("rank_pattern", json!({"q_proj": 8}), "rank_pattern"),
        ("alpha_pattern", json!({"q_proj": 8}), "alpha_pattern"),
        ("target_modules", json!(["q_proj", "lm_head"]), "lm_head"),
        ("r", json!(0), "r is missing or no rank"),
        ("r", json!(5), "[4, 64]"),
        ("lora_alpha", json!("8"), "lora_alpha"),
    ] {
        let mut lora = lora.clone();
        lora.config[key] = value;
        let said = refused(&lora);
        assert!(said.contains(word) && said.contains("adapter_"), "{key}: {said}");
    }
    let without = |gone: &str| {
        let mut lora = lora.clone();
        lora.tensors.retain(|(name, ..)| name != gone);
        lora
    };
    for gone in ["lora_A", "lora_B"] {
        let name = format!("base_model.model.model.layers.1.mlp.up_proj.{gone}.weight");
        let said = refused(&without(&name));
        assert!(said.contains(&name) && said.contains("missing"), "{said}");
    }
    let mut other = lora.clone();
    other.tensors.push(("base_model.model.lm_head.lora_A.weight".into(), [4, 64], vec![0.0; 256]));
    assert!(refused(&other).contains("lm_head.lora_A"), "{}", refused(&other));
    // Layers that the model does not have.
    let deep = Lora::random(3, &sizes, 4, 1);
    assert!(refused(&deep).contains("layers.2."), "{}", refused(&deep));
    let mut none = lora.clone();
    none.tensors.clear();
    none.config["target_modules"] = json!("all-linear");
    assert!(refused(&none).contains("changes no layer"), "{}", refused(&none));
    let mut wide = lora.clone();
    wide.tensors[1].1 = [4, 64];
    assert!(matches!(read(&wide), Err(ModelError::Shape { .. })));
}

fn read(lora: &Lora) -> Result<Footprint, ModelError> {
    let files = ModelFiles::Safetensors(SafetensorsModel::open(&oracle("qwen2_untied")).unwrap());
    Footprint::of(&files, &options(vec![lora.files()], None))
}

#[test]
fn folders_that_hold_no_adapter_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let said = || AdapterFiles::open(folder.path()).unwrap_err().to_string();
    assert!(said().contains("adapter_config.json"), "{}", said());
    std::fs::write(folder.path().join("adapter_config.json"), "{").unwrap();
    assert!(said().contains("adapter_model.safetensors"), "{}", said());
    std::fs::write(folder.path().join("adapter_model.safetensors"), [0; 4]).unwrap();
    assert!(said().contains("adapter_config.json"), "{}", said());
    std::fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    assert!(said().contains("header"), "{}", said());
}

/// `unsay generate` with these words: the text, and what its plan says of adapters.
fn generates(words: &[&str]) -> (String, u64) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(["generate", "--prompt", "Rivers are", "--max-tokens", "8", "--json"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = report["memory"]["models"][0]["parts"]["adapters"].as_u64().unwrap();
    (report["text"].as_str().unwrap().to_owned(), bytes)
}

#[test]
fn the_command_line_hosts_a_model_with_an_adapter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    // The default model's queries and values, in all of its 30 layers.
    let modules = modules(576, 9, 3, 64, 1536);
    let some = [modules[0], modules[2]];
    let (plain, none) = generates(&[]);
    assert_eq!(none, 0);
    let mut idle = Lora::random(30, &some, 2, 1);
    for (name, _, numbers) in &mut idle.tensors {
        if name.contains("lora_B") {
            numbers.fill(0.0);
        }
    }
    idle.write(folder.path());
    let bytes = 4 * 30 * 2 * (576 + 576 + 576 + 192);
    assert_eq!(generates(&["--adapter", path]), (plain.clone(), bytes));
    Lora::random(30, &some, 2, 1).write(folder.path());
    let (changed, held) = generates(&["--adapter", path]);
    assert_eq!(held, bytes);
    assert_ne!(changed, plain);
    let (_, held) = generates(&["--adapter", path, "--merge"]);
    assert_eq!(held, 0);
}
