//! What is not run is refused by name, and no input makes the forward pass panic.

use super::tiny::{KINDS, Tiny, open};
use super::{load, oracle, pages, rows};
use crate::support::GgufBuilder;
use serde_json::{Value, json};
use unsay::device::cpu::Cpu;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{
    AdapterId, Batch, BatchProblem, Decoder, ModelError, ModelSpec, Row, Transformer,
};
use unsay::store::{ModelFiles, WeightType};
use unsay::text::TokenId;

fn config(name: &str) -> Value {
    let text = std::fs::read_to_string(oracle(name).join("config.legacy.json")).expect("a config");
    serde_json::from_str(&text).expect("JSON")
}

/// What is said of a model whose config.json has one key changed.
fn said_of(name: &str, key: &str, value: Value) -> String {
    let mut config = config(name);
    config[key] = value;
    match ModelSpec::from_config(&config, true) {
        Ok(spec) => panic!("{key} was taken: {spec:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn options_of_config_json_that_are_not_run_are_refused_by_name() {
    let yarn = json!({"rope_type": "yarn", "factor": 4.0});
    let nested = json!({"rope_type": "llama3", "factor": 8.0, "rope_theta": 5e5});
    let old_name = json!({"type": "linear", "factor": 2.0});
    for (name, key, value, word) in [
        ("qwen2_untied", "rope_scaling", yarn, "yarn"),
        ("llama_mha", "rope_parameters", nested, "llama3"),
        ("llama_mha", "rope_scaling", old_name, "linear"),
        ("llama_mha", "rope_scaling", json!({"factor": 2.0}), "rope_type"),
        ("mistral", "sliding_window", json!(512), "sliding_window 512"),
        (
            "qwen2_tied",
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "sliding_attention",
        ),
        ("llama_mha", "architectures", json!(["MixtralForCausalLM"]), "MixtralForCausalLM"),
        ("llama_mha", "architectures", json!([]), "architectures"),
        ("qwen3_tied", "num_experts", json!(8), "num_experts"),
        ("llama_mha", "quantization_config", json!({"quant_method": "awq"}), "awq"),
        ("llama_mha", "quantization_config", json!({"quant_method": "gptq"}), "gptq"),
        ("llama_mha", "attention_bias", json!(true), "attention_bias"),
        ("llama_mha", "mlp_bias", json!(true), "mlp_bias"),
        ("llama_mha", "hidden_act", json!("gelu"), "gelu"),
        ("llama_mha", "partial_rotary_factor", json!(0.5), "partial_rotary_factor"),
        ("llama_mha", "hidden_size", json!("64"), "hidden_size"),
        ("llama_mha", "vocab_size", json!(null), "vocab_size"),
        ("llama_mha", "num_hidden_layers", json!(0), "layers"),
        ("llama_mha", "num_key_value_heads", json!(3), "share"),
        ("llama_mha", "head_dim", json!(15), "15"),
        ("llama_mha", "rms_norm_eps", json!(-1.0), "epsilon"),
        ("llama_mha", "rope_theta", json!("many"), "rope_theta"),
    ] {
        let said = said_of(name, key, value);
        assert!(said.contains(word), "{key}: {said}");
    }
}

#[test]
fn harmless_options_of_config_json_are_taken() {
    for (name, key, value) in [
        ("mistral", "sliding_window", json!(null)),
        ("mistral", "sliding_window", json!(1 << 20)),
        ("qwen2_tied", "sliding_window", json!(16)), // use_sliding_window is false there
        ("llama_mha", "rope_scaling", json!({"rope_type": "default"})),
        ("llama_mha", "head_dim", json!(null)),
    ] {
        let mut config = config(name);
        config[key] = value;
        ModelSpec::from_config(&config, true).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    // Absent keys have the values that the families' configurations give them.
    let mut bare = config("llama_mha");
    for key in ["rope_theta", "rope_scaling", "num_key_value_heads", "head_dim"] {
        bare.as_object_mut().expect("an object").remove(key);
    }
    let spec = ModelSpec::from_config(&bare, false).expect("a specification");
    assert_eq!((spec.rope.base, spec.kv_heads, spec.tied_head), (1e4, spec.heads, true));
}

fn try_load(files: &ModelFiles) -> Result<Transformer<Cpu>, ModelError> {
    Transformer::load(Cpu::new(1).expect("a thread"), files, KvType::F16, 4)
}

fn refusal(builder: &GgufBuilder) -> String {
    match try_load(&open(builder)) {
        Ok(_) => panic!("the file was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn options_of_gguf_files_that_are_not_run_are_refused_by_name() {
    let file = || Tiny::new("llama", WeightType::F32).builder();
    let one = |x: f32| x.to_le_bytes();
    for (builder, word) in [
        (file().string("llama.rope.scaling.type", "yarn"), "yarn"),
        (file().raw("llama.rope.scale_linear", GgufBuilder::F32, &one(4.0)), "linear"),
        (file().tensor("rope_freqs.weight", 0, &[1], &one(1.0)), "llama3"),
        (file().u32("llama.expert_count", 8), "expert_count"),
        (file().u32("llama.rope.dimension_count", 12), "partial RoPE"),
        (file().u32("llama.attention.sliding_window", 64), "sliding-window"),
        (file().bool("llama.attention.causal", false), "causal"),
        (file().tensor("blk.0.attn_q.bias", 0, &[1], &one(1.0)), "blk.0.attn_q.bias"),
        (Tiny::new("gemma", WeightType::F32).builder(), "gemma"),
    ] {
        let said = refusal(&builder);
        assert!(said.contains(word), "{word}: {said}");
    }
    for builder in [
        file().string("llama.rope.scaling.type", "none"),
        file().u32("llama.expert_count", 0),
        file().u32("llama.rope.dimension_count", 24),
    ] {
        try_load(&open(&builder)).map(drop).expect("harmless options are taken");
    }
}

#[test]
fn tensors_are_checked_against_the_options() {
    let wrong = GgufBuilder::default()
        .string("general.architecture", "llama")
        .u32("llama.block_count", 1)
        .u32("llama.context_length", 64)
        .u32("llama.embedding_length", 8)
        .u32("llama.feed_forward_length", 8)
        .u32("llama.attention.head_count", 2)
        .raw("llama.attention.layer_norm_rms_epsilon", GgufBuilder::F32, &1e-5f32.to_le_bytes());
    let missing = refusal(&wrong);
    assert!(missing.contains("token_embd.weight"), "{missing}");
    let shaped = wrong.tensor("token_embd.weight", 0, &[5, 4], &[0; 80]);
    match try_load(&open(&shaped)) {
        Err(ModelError::Shape { tensor, found, expected }) => {
            assert_eq!(
                (tensor.as_str(), found, expected),
                ("token_embd.weight", vec![5, 4], vec![5, 8])
            );
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the file was taken"),
    }
}

fn row(slot: usize, position: usize, token: u32) -> Row {
    Row { slot, position, token: TokenId(token), adapter: None }
}

#[test]
fn a_batch_that_breaks_a_rule_is_refused_with_its_row() {
    let files = Tiny::new("llama", WeightType::F32).files();
    let mut model = load(&files, KvType::F16, 4);
    let (first, second) = (pages(0, 2), pages(1, 2));
    let stray = [PageId(9)];
    let tables: [&[PageId]; 3] = [&first, &second, &stray];
    let adapter = Row { adapter: Some(AdapterId(0)), ..row(0, 0, 0) };
    for (batch, problem) in [
        (vec![row(3, 0, 0)], BatchProblem::NoSlot { slot: 3, slots: 3 }),
        (vec![row(0, 0, 77)], BatchProblem::NoToken { token: 77, vocab: 77 }),
        (vec![row(0, 1024, 0)], BatchProblem::BeyondContext { position: 1024, context: 1024 }),
        (vec![row(0, 32, 0)], BatchProblem::ShortTable { position: 32, needed: 3, found: 2 }),
        (vec![row(2, 0, 0)], BatchProblem::NoPage { page: 9, pages: 4 }),
        (vec![row(0, 0, 0), row(0, 2, 0)], BatchProblem::NotRising { position: 2, expected: 1 }),
        (vec![row(0, 0, 0), row(0, 0, 0)], BatchProblem::NotRising { position: 0, expected: 1 }),
        (vec![row(0, 16, 0), row(1, 0, 0)], BatchProblem::SharedPage { page: 1, other: 0 }),
        (vec![adapter], BatchProblem::Adapter),
    ] {
        match model.forward(&Batch { rows: &batch, tables: &tables }) {
            Err(ModelError::Batch { row, problem: found }) => {
                assert_eq!((row, found), (batch.len() - 1, problem));
            }
            other => panic!("{problem:?}: {other:?}"),
        }
    }
    model.forward(&Batch { rows: &[], tables: &[] }).expect("no rows are no work");
}

#[test]
fn hidden_rows_and_room_for_logits_are_checked() {
    let files = Tiny::new("llama", WeightType::F32).files();
    let mut model = load(&files, KvType::F16, 4);
    for (page, offset) in [(4, 0), (0, 16)] {
        let wanted = [HiddenAt { page: PageId(page), offset }];
        let said = model.logits(&wanted, &mut [0.0; 77]);
        assert!(matches!(said, Err(ModelError::NoSuchHidden { index: 0, .. })), "{said:?}");
    }
    let wanted = [HiddenAt { page: PageId(0), offset: 0 }];
    let said = model.logits(&wanted, &mut [0.0; 76]);
    assert!(matches!(said, Err(ModelError::LogitsRoom { expected: 77, found: 76 })), "{said:?}");
    model.logits(&[], &mut []).expect("nothing wanted, nothing done");
}

#[test]
fn a_result_that_is_not_finite_names_its_rows() {
    for kind in KINDS {
        for bad in [f32::NAN, f32::INFINITY, f32::MAX] {
            let tiny = Tiny { poison: Some((5, bad)), ..Tiny::new("qwen3", kind) };
            let mut model = load(&tiny.files(), KvType::F16, 4);
            let table = pages(0, 1);
            let said =
                model.forward(&Batch { rows: &rows(0, 0, &[1, 2, 5, 3]), tables: &[&table] });
            assert!(matches!(&said, Ok(bad) if bad == &[2, 3]), "{kind:?}: {said:?}");
            // What is not behind it in its sequence is as good as ever.
            let said = model.forward(&Batch { rows: &rows(0, 0, &[1, 2]), tables: &[&table] });
            assert_eq!(said.expect("it runs"), [0usize; 0]);
        }
    }
}

#[test]
fn an_arena_that_memory_cannot_hold_is_refused() {
    let files = Tiny::new("llama", WeightType::F32).files();
    let load =
        |pages| Transformer::load(Cpu::new(1).expect("a thread"), &files, KvType::F16, pages);
    assert!(matches!(load(0), Err(ModelError::NoPages)));
    for pages in [usize::MAX, 1 << 45] {
        match load(pages) {
            Err(ModelError::Device(error)) => println!("{error}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{pages} pages were taken"),
        }
    }
}
