//! What is not run is refused by name, and no input makes the forward pass panic.

use super::tiny::{KINDS, Tiny, open};
use super::{load, oracle, pages, rows};
use crate::support::GgufBuilder;
use serde_json::{Value, json};
use unsay::device::cpu::Cpu;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{
    AdapterId, Batch, BatchProblem, Decoder, ModelError, ModelSpec, RopeScaling, Row, Transformer,
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
    let rope = |kind: &str| json!({"rope_type": kind, "factor": 4.0});
    let llama3 = |low: f64, high: f64| {
        json!({
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": 256,
        })
    };
    let by_layer = json!({"full_attention": rope("linear"), "sliding_attention": rope("linear")});
    for (name, key, value, word) in [
        ("llama_mha", "rope_scaling", rope("dynamic"), "dynamic"),
        ("llama_mha", "rope_parameters", rope("longrope"), "longrope"),
        ("llama_mha", "rope_scaling", json!({"type": "mrope", "mrope_section": [8]}), "mrope"),
        ("llama_mha", "rope_parameters", by_layer, "full_attention"),
        ("llama_mha", "rope_scaling", json!({"factor": 2.0}), "rope_scaling.rope_type"),
        ("llama_mha", "rope_scaling", json!({"type": "linear"}), "rope_scaling.factor"),
        ("llama_mha", "rope_scaling", json!({"type": "linear", "factor": 0.0}), "at least 1"),
        ("llama_mha", "rope_scaling", json!("linear"), "an object"),
        ("llama_mha", "rope_scaling", llama3(4.0, 1.0), "from 4 to 1"),
        ("llama_rope_linear", "rope_parameters", rope("yarn"), "different things"),
        ("mistral", "sliding_window", json!(512), "sliding_window 512"),
        (
            "qwen2_tied",
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "sliding_attention",
        ),
        ("qwen2_tied", "use_sliding_window", json!("no"), "use_sliding_window"),
        ("llama_mha", "architectures", json!(["MixtralForCausalLM"]), "mixture of experts"),
        ("llama_mha", "architectures", json!(["Qwen3MoeForCausalLM"]), "mixture of experts"),
        ("llama_mha", "architectures", json!(["GemmaForCausalLM"]), "GemmaForCausalLM"),
        ("llama_mha", "architectures", json!([]), "architectures"),
        ("qwen3_tied", "num_experts", json!(8), "num_experts"),
        ("llama_mha", "quantization_config", json!({"quant_method": "awq"}), "\"awq\""),
        ("llama_mha", "quantization_config", json!({"quant_method": "gptq"}), "take a GGUF file"),
        ("llama_mha", "attention_bias", json!(true), "attention_bias"),
        ("llama_mha", "mlp_bias", json!(true), "mlp_bias"),
        ("llama_mha", "hidden_act", json!("gelu"), "gelu"),
        ("llama_mha", "partial_rotary_factor", json!(0.5), "partial_rotary_factor"),
        ("llama_mha", "hidden_size", json!("64"), "hidden_size"),
        ("llama_mha", "vocab_size", json!(null), "vocab_size"),
        ("llama_mha", "num_hidden_layers", json!(0), "num_hidden_layers is 0"),
        ("llama_mha", "num_attention_heads", json!(0), "num_attention_heads"),
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
        ("qwen3_tied", "sliding_window", json!(16)),
        ("llama_mha", "rope_parameters", json!({})),
        ("llama_rope_linear", "rope_parameters", json!({"rope_type": "linear", "factor": 4.0})),
        ("llama_mha", "quantization_config", json!(null)),
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
    // A window that begins behind the last layer bounds none.
    let mut windowed = config("qwen2_tied");
    windowed.as_object_mut().expect("an object").remove("layer_types");
    windowed["use_sliding_window"] = json!(true);
    windowed["sliding_window"] = json!(16);
    ModelSpec::from_config(&windowed, false).expect("28 full layers before the window");
    windowed["max_window_layers"] = json!(1);
    let said = ModelSpec::from_config(&windowed, false).expect_err("a window").to_string();
    assert!(said.contains("sliding_window 16"), "{said}");
}

#[test]
fn yarn_reaches_as_far_as_its_factor_and_other_kinds_as_the_file_says() {
    let spec = |name: &str, key: &str, value: Value| {
        let mut config = config(name);
        config[key] = value;
        ModelSpec::from_config(&config, true).expect("a specification")
    };
    // Published checkpoints name the context before scaling, the switch is added by hand.
    let yarn = json!({"type": "yarn", "factor": 4.0});
    let scaled = spec("qwen2_untied", "rope_scaling", yarn);
    assert_eq!(scaled.context_length, 4 * 2048);
    let RopeScaling::Yarn(yarn) = scaled.rope.scaling else { panic!("{:?}", scaled.rope) };
    assert_eq!((yarn.original_context, yarn.beta_fast, yarn.beta_slow), (2048, 32.0, 1.0));
    assert!((yarn.attention - 1.138_629_436_111_989).abs() < 1e-12, "0.1 ln 4 + 1");
    let own = json!({"type": "yarn", "factor": 4.0, "attention_factor": 1.5});
    let scaled = spec("qwen2_untied", "rope_scaling", own);
    assert_eq!(scaled.rope.attention(), 1.5);
    let both = json!({"type": "yarn", "factor": 4.0, "mscale": 0.5, "mscale_all_dim": 1.0});
    let scaled = spec("qwen2_untied", "rope_scaling", both);
    let expected = (0.05 * 4f64.ln() + 1.0) / (0.1 * 4f64.ln() + 1.0);
    assert!((scaled.rope.attention() - expected).abs() < 1e-12);
    for name in ["llama_rope_linear", "llama_rope_llama3", "qwen2_yarn"] {
        let config = config(name);
        let spec = ModelSpec::from_config(&config, true).expect(name);
        assert_eq!(spec.context_length, 2048, "{name}");
    }
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
    let float = |key: &str, x: f32| file().raw(key, GgufBuilder::F32, &one(x));
    for (builder, word) in [
        (file().string("llama.rope.scaling.type", "longrope"), "longrope"),
        (file().string("llama.rope.scaling.type", "dynamic"), "llama.rope.scaling.type"),
        (float("llama.rope.scale_linear", -4.0), "at least 1"),
        (
            float("llama.rope.scaling.yarn_log_multiplier", 0.1)
                .string("llama.rope.scaling.type", "yarn"),
            "yarn_log_multiplier",
        ),
        (file().tensor("rope_freqs.weight", 0, &[1], &one(1.0)), "[12]"),
        (file().tensor("rope_freqs.weight", 0, &[12], &[0; 48]), "rope_freqs.weight holds 0"),
        (file().strings("tokenizer.ggml.tokens", ["a"]), "1 tokens and token_embd.weight has 77"),
        (file().u32("llama.expert_count", 8), "llama.expert_count"),
        (file().u32("llama.rope.dimension_count", 12), "partial RoPE"),
        (file().u32("llama.attention.sliding_window", 64), "sliding-window"),
        (file().bool("llama.attention.causal", false), "causal"),
        (file().tensor("blk.0.attn_q.bias", 0, &[1], &one(1.0)), "blk.0.attn_q.bias"),
        (Tiny::new("gemma", WeightType::F32).builder(), "gemma"),
    ] {
        let said = refusal(&builder);
        assert!(said.contains(word), "{word}: {said}");
        assert!(said.contains("tiny.gguf"), "the file is named: {said}");
    }
    for builder in [
        file().string("llama.rope.scaling.type", "none"),
        file().u32("llama.expert_count", 0),
        file().u32("llama.rope.dimension_count", 24),
        float("llama.rope.scaling.factor", 0.0),
        float("llama.rope.scaling.factor", 2.0),
        file().u32("llama.attention.sliding_window", 1024),
    ] {
        try_load(&open(&builder)).map(drop).expect("harmless options are taken");
    }
}

#[test]
fn what_cannot_be_in_metadata_is_named_by_its_key_and_file() {
    let file = |key: &str, value: u32| {
        let numbers = [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", 8),
            ("feed_forward_length", 8),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("attention.key_length", 4),
            ("attention.value_length", 4),
        ];
        let file = GgufBuilder::default()
            .string("general.architecture", "qwen2")
            .raw("qwen2.attention.layer_norm_rms_epsilon", GgufBuilder::F32, &1f32.to_le_bytes())
            .tensor("token_embd.weight", 0, &[5, 8], &[0; 160]);
        numbers.into_iter().fold(file, |file, (name, number)| {
            let number = if name == key { value } else { number };
            file.u32(&format!("qwen2.{name}"), number)
        })
    };
    for (key, value, word) in [
        ("attention.head_count", 0, "qwen2.attention.head_count is 0"),
        ("attention.head_count_kv", 0, "qwen2.attention.head_count_kv is 0"),
        ("attention.head_count_kv", 3, "qwen2.attention.head_count_kv"),
        ("attention.head_count", 1 << 31, "qwen2.attention.head_count is 2147483648"),
        ("block_count", 0, "qwen2.block_count is 0"),
        ("context_length", u32::MAX, "qwen2.context_length is 4294967295"),
        ("embedding_length", 1 << 30, "qwen2.embedding_length is 1073741824"),
        ("attention.key_length", 5, "qwen2.attention.value_length"),
    ] {
        let said = refusal(&file(key, value));
        assert!(said.contains(word) && said.contains("tiny.gguf"), "{word}: {said}");
        assert!(!said.contains("config.json"), "{said}");
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
        Err(ModelError::Shape { tensor, found, expected, .. }) => {
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
        (vec![adapter], BatchProblem::Adapter { adapter: 0, known: 0 }),
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
