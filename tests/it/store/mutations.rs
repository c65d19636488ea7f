//! Readers of models on damaged files: whatever is changed in a small valid model, it is read, or
//! refused with an error that names a file; nothing panics, and nothing is allocated that the file only
//! claims to hold.
//!
//! A mutation is a function of its number. `UNSAY_MUTATION_SECONDS` runs each reader that long in place
//! of a short while, `UNSAY_FIRST_MUTATION` sets the first number; a failure names its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::model::lora::{Lora, modules_of};
use crate::model::tiny::{Numbers, Tiny};
use crate::support::GgufBuilder;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;
use unsay::device::cpu::Cpu;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::model::{
    Batch, Decoder, Footprint, LoadOptions, ModelError, ModelSpec, Row, Transformer,
};
use unsay::store::{
    AdapterFiles, Gguf, Manifest, ModelFiles, SafetensorsModel, StoreError, WeightType,
};
use unsay::text::{ChatTemplate, Message, Role, TokenId, Tokenizer};

/// The system's allocator, which remembers the largest piece that a thread asked for.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn watch(size: usize) {
    // At a thread's end there is nothing to remember.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        watch(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        watch(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        watch(size);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

/// A file of a model: its name, its bytes, and how many of them say what the rest is.
type File = (&'static str, Vec<u8>, usize);

/// Numbers that readers stumble over.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    3,
    255,
    256,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 32,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

/// Changes a file in one way.
fn change(numbers: &mut Numbers, bytes: &mut Vec<u8>, head: usize) {
    if bytes.is_empty() {
        return;
    }
    // Mostly where structure is.
    let end = if numbers.below(8) > 0 { head.min(bytes.len()) } else { bytes.len() };
    let at = numbers.below(end.max(1));
    match numbers.below(9) {
        0 => bytes[at] ^= 1 << numbers.below(8),
        1 => bytes[at] = numbers.next() as u8,
        2 => {
            let edge = EDGES[numbers.below(EDGES.len())].to_le_bytes();
            let width = [1, 2, 4, 8][numbers.below(4)];
            let to = bytes.len().min(at + width);
            bytes[at..to].copy_from_slice(&edge[..to - at]);
        }
        3 => bytes.truncate(at),
        4 => {
            let count = 1 + numbers.below(12);
            bytes.drain(at..bytes.len().min(at + count));
        }
        5 => {
            let count = 1 + numbers.below(40);
            let piece = bytes[at..bytes.len().min(at + count)].to_vec();
            let to = numbers.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        6 => {
            let extra: Vec<u8> = (0..1 + numbers.below(9)).map(|_| numbers.next() as u8).collect();
            bytes.splice(at..at, extra);
        }
        7 => number_of_text(numbers, bytes, at),
        _ => {
            let words =
                [&b"null"[..], b"-1", b"1e999", b"[]", b"{}", b"\"\"", b"\"../a\"", b"true"];
            let word = words[numbers.below(words.len())];
            let to = bytes.len().min(at + numbers.below(word.len() + 1));
            bytes.splice(at..to, word.iter().copied());
        }
    }
}

/// Puts another number where the next one stands that is written in digits.
fn number_of_text(numbers: &mut Numbers, bytes: &mut Vec<u8>, at: usize) {
    let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else {
        return;
    };
    let digits = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let edge = EDGES[numbers.below(EDGES.len())].to_string();
    bytes.splice(from..from + digits, edge.bytes());
}

/// Changes one or several files of a model.
fn mutated(files: &[File], number: u64) -> Vec<(&'static str, Vec<u8>)> {
    let mut numbers = Numbers(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xBAD);
    let mut changed: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, bytes, _)| (*name, bytes.clone())).collect();
    for _ in 0..1 + numbers.below(3) {
        let file = numbers.below(files.len());
        change(&mut numbers, &mut changed[file].1, files[file].2);
    }
    changed
}

/// Goes as far with a model as its files let it: options, plan, weights, a row; or says why not.
fn try_all(files: &ModelFiles) -> Result<(), String> {
    if let ModelFiles::Gguf(gguf) = files {
        super::damaged_gguf::read_all(gguf);
    }
    run(files).map_err(|error| error.to_string())
}

fn run(files: &ModelFiles) -> Result<(), ModelError> {
    ModelSpec::from_files(files)?;
    let kv = KvType::F16;
    let options = LoadOptions { threads: 1, pages: 2, kv, ..LoadOptions::default() };
    Footprint::of(files, &options)?;
    let mut model = Transformer::load_with(Cpu::new(1)?, files, &options)?;
    let table = [PageId(0), PageId(1)];
    let row = Row { slot: 0, position: 0, token: TokenId(0), adapter: None };
    model.forward(&Batch { rows: &[row], tables: &[&table] })?;
    let mut logits = vec![0.0; model.vocab_size()];
    model.logits(&[HiddenAt { page: PageId(0), offset: 0 }], &mut logits)
}

/// Runs mutations for as long as is asked. `attempt` reads what lies in a folder to the end, or says why
/// it does not.
fn mutate(
    files: &[File],
    short: u64,
    attempt: impl Fn(&Path) -> Result<(), String> + std::panic::RefUnwindSafe,
) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("UNSAY_FIRST_MUTATION").unwrap_or(0);
    let until = number("UNSAY_MUTATION_SECONDS").map(|n| Instant::now() + Duration::from_secs(n));
    let folder = tempfile::tempdir().unwrap();
    let write = |files: &[(&str, Vec<u8>)]| {
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    };
    let whole: Vec<_> = files.iter().map(|(name, bytes, _)| (*name, bytes.clone())).collect();
    write(&whole);
    attempt(folder.path()).expect("unchanged it is read");
    let (mut read, mut refused) = (0u64, 0u64);
    for number in first.. {
        if !until.map_or(number < first + short, |until| Instant::now() < until) {
            break;
        }
        let size = write(&mutated(files, number));
        LARGEST.set(0);
        let tried = std::panic::catch_unwind(|| attempt(folder.path())).unwrap_or_else(|panic| {
            println!("UNSAY_FIRST_MUTATION={number}");
            std::panic::resume_unwind(panic)
        });
        // Buffers of 256 rows of a model's own widths, and what its files hold.
        let largest = LARGEST.get();
        assert!(
            largest < (1 << 22) + 64 * size,
            "mutation {number}: {largest} bytes at once for {size} bytes of files"
        );
        match tried {
            Ok(()) => read += 1,
            Err(why) => {
                refused += 1;
                // Every refusal says which file or tensor it is about.
                let place = folder.path().to_str().unwrap();
                let named = why.contains(place) || why.contains("tensor ");
                assert!(named, "mutation {number} is refused without a place: {why}");
            }
        }
    }
    println!("{read} mutations were read, {refused} refused");
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused");
}

/// A small model with everything that a reader looks at.
fn small_gguf() -> Vec<File> {
    let tiny = Tiny {
        layers: 1,
        hidden: 32,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        ffn: 32,
        vocab: 12,
        ..Tiny::new("qwen3", WeightType::Q4_0)
    };
    let float = |x: f32| x.to_le_bytes();
    let tokens: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    let bytes = tiny
        .builder()
        .strings("tokenizer.ggml.tokens", tokens.iter().map(String::as_str))
        .i32s("tokenizer.ggml.token_type", [1; 12])
        .string("qwen3.rope.scaling.type", "yarn")
        .raw("qwen3.rope.scaling.factor", GgufBuilder::F32, &float(4.0))
        .u32("qwen3.rope.scaling.original_context_length", 256)
        .bool("qwen3.attention.causal", true)
        .tensor("rope_freqs.weight", 0, &[8], &[1f32; 8].map(f32::to_le_bytes).concat())
        .build();
    let data = bytes.windows(17).rposition(|w| w == b"rope_freqs.weight").unwrap();
    vec![("model.gguf", bytes, data + 64)]
}

#[test]
fn damaged_gguf_models_are_read_or_refused() {
    mutate(&small_gguf(), 3_000, |folder| {
        let gguf = Gguf::open(&folder.join("model.gguf")).map_err(|error| error.to_string())?;
        // A GGUF file is not said to be another file.
        let tried = try_all(&ModelFiles::Gguf(gguf));
        tried.inspect_err(|why| assert!(!why.contains("config.json"), "{why}"))
    });
}

/// A model in two shards.
fn small_split() -> Vec<File> {
    let names = ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"];
    let shard = |number: u16| {
        GgufBuilder::default()
            .string("general.name", "a model in two files")
            .raw("split.no", 2, &number.to_le_bytes())
            .raw("split.count", 2, &2u16.to_le_bytes())
            .raw("split.tensors.count", GgufBuilder::I32, &4i32.to_le_bytes())
            .tensor(&format!("{number}.a"), 0, &[2, 3], &[1; 24])
            .tensor(&format!("{number}.b"), 2, &[1, 32], &[2; 18])
            .build()
    };
    (0..).zip(names).map(|(number, name)| (name, shard(number), 300)).collect()
}

#[test]
fn damaged_shards_are_read_or_refused() {
    mutate(&small_split(), 2_000, |folder| {
        let path = folder.join("model-00002-of-00002.gguf");
        let gguf = Gguf::open(&path).map_err(|error| error.to_string())?;
        super::damaged_gguf::read_all(&gguf);
        Ok(())
    });
}

/// A tensor's name and shape.
type Shape = (String, Vec<usize>);

/// A model in two shards with an index.
fn small_safetensors() -> Vec<File> {
    let (hidden, ffn, vocab) = (16, 24, 12);
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
        "vocab_size": vocab, "rms_norm_eps": 1e-5, "max_position_embeddings": 128,
        "tie_word_embeddings": true, "hidden_act": "silu", "sliding_window": null,
        "rope_theta": 1e4, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    });
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let shards: [(&str, Vec<Shape>); 2] = [
        (
            "model-00001-of-00002.safetensors",
            vec![
                ("model.embed_tokens.weight".into(), vec![vocab, hidden]),
                (layer("input_layernorm"), vec![hidden]),
                (layer("self_attn.q_proj"), vec![16, hidden]),
                (layer("self_attn.k_proj"), vec![8, hidden]),
                (layer("self_attn.v_proj"), vec![8, hidden]),
                (layer("self_attn.o_proj"), vec![hidden, 16]),
            ],
        ),
        (
            "model-00002-of-00002.safetensors",
            vec![
                (layer("post_attention_layernorm"), vec![hidden]),
                (layer("mlp.gate_proj"), vec![ffn, hidden]),
                (layer("mlp.up_proj"), vec![ffn, hidden]),
                (layer("mlp.down_proj"), vec![hidden, ffn]),
                ("model.norm.weight".into(), vec![hidden]),
            ],
        ),
    ];
    let mut map = serde_json::Map::new();
    let mut files = Vec::new();
    for (file, tensors) in shards {
        let zeros = vec![0; 2 * 16 * 32];
        let views = tensors.iter().map(|(name, shape)| {
            map.insert(name.clone(), file.into());
            let bytes = 2 * shape.iter().product::<usize>();
            let view = TensorView::new(Dtype::BF16, shape.clone(), &zeros[..bytes]).unwrap();
            (name.clone(), view)
        });
        let bytes = safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap();
        let head = u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize + 8;
        files.push((file, bytes, head));
    }
    let index = json!({"metadata": {"total_size": 4096}, "weight_map": map}).to_string();
    for (name, text) in
        [("config.json", config.to_string()), ("model.safetensors.index.json", index)]
    {
        let len = text.len();
        files.push((name, text.into_bytes(), len));
    }
    files
}

#[test]
fn damaged_safetensors_models_are_read_or_refused() {
    mutate(&small_safetensors(), 3_000, |folder| {
        let model = SafetensorsModel::open(folder).map_err(|error| error.to_string())?;
        try_all(&ModelFiles::Safetensors(model))
    });
}

#[test]
fn damaged_adapters_are_read_or_refused() {
    let tiny = Tiny::new("llama", WeightType::F32);
    let (base, folder) = (tiny.files(), tempfile::tempdir().unwrap());
    Lora::random(tiny.layers, &modules_of(&tiny)[..2], 2, 1).write(folder.path());
    let files = ["adapter_config.json", "adapter_model.safetensors"].map(|name| {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        let head = bytes.len().min(1200);
        (name, bytes, head)
    });
    mutate(&files, 2_000, |folder| {
        let adapter = AdapterFiles::open(folder).map_err(|error| error.to_string())?;
        let options = LoadOptions { adapters: vec![adapter], ..LoadOptions::default() };
        Footprint::of(&base, &options).map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn damaged_manifests_are_read_or_refused_with_the_file_and_the_place() {
    let text = super::manifests::GOOD;
    let files = [("m.toml", text.as_bytes().to_vec(), text.len())];
    mutate(&files, 6_000, |folder| {
        let path = folder.join("m.toml");
        let bytes = std::fs::read(&path).unwrap();
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(format!("{} is no text", path.display()));
        };
        let place = format!("{}: ", path.display());
        match Manifest::parse(&text, &path) {
            Ok(manifest) => {
                // What is read can be written, and is read alike.
                let again = toml::to_string(&manifest).unwrap();
                assert_eq!(Manifest::parse(&again, &path).unwrap(), manifest);
                Ok(())
            }
            Err(StoreError::Manifest { path: named, field, why }) => {
                assert!(named == path && !field.is_empty() && !why.is_empty());
                Err(place)
            }
            Err(error) => panic!("{error}"),
        }
    });
}

/// A tokenizer of bytes with two joins, and a template with what templates are made of.
fn small_texts() -> Vec<File> {
    let mut vocab = serde_json::Map::new();
    let ids = ["<s>", "</s>", "a", "b", "c", "Ġ", "Ċ", "ab", "abc", "u", "s", "e", "r", ":"];
    for (id, token) in ids.iter().enumerate() {
        vocab.insert((*token).to_owned(), id.into());
    }
    let special = |id: u32, text: &str| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<s>"), special(1, "</s>")],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\p{L}+|[^\\p{L}]"}, "behavior": "Isolated",
             "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocab, "merges": [["a", "b"], ["ab", "c"]]},
    });
    let template = "{% for m in messages %}{% set text = m.content | trim %}{{ '<s>' + m.role + ':' + \
                    text }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}\
                    {% if add_generation_prompt %}{{ '</s>' ~ 'a' * 2 }}{% endif %}";
    let config = json!({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template,
                        "add_bos_token": false});
    [("tokenizer.json", tokenizer), ("tokenizer_config.json", config)]
        .map(|(name, value)| {
            let text = value.to_string().into_bytes();
            let length = text.len();
            (name, text, length)
        })
        .into()
}

#[test]
fn damaged_tokenizers_and_templates_are_read_or_refused() {
    mutate(&small_texts(), 4_000, |folder| {
        let tokenizer = Tokenizer::from_file(&folder.join("tokenizer.json"));
        let tokenizer = tokenizer.map_err(|error| error.to_string())?;
        let in_folder = |what: String| format!("{}: {what}", folder.display());
        // A text that the damaged vocabulary cannot write is refused by itself.
        let ids = tokenizer.encode("abc a").map_err(|error| in_folder(error.to_string()))?;
        tokenizer.decode(&ids);
        let template = ChatTemplate::from_folder(folder).map_err(|error| error.to_string())?;
        let Some(template) = template else { return Ok(()) };
        let messages = [Message::text(Role::User, "abc"), Message::text(Role::Assistant, "a")];
        let rendered = template.ids(&tokenizer, &messages, true);
        rendered.map(drop).map_err(|error| in_folder(error.to_string()))
    });
}

/// The template alone, where damage hits its words more often than its quotation marks.
#[test]
fn damaged_templates_are_read_or_refused() {
    let template = "{%- set ns = namespace(found=false) -%}{% for m in messages %}{% if m.role == 'user' and \
                    not ns.found %}{% set ns.found = true %}{% endif %}{{ '<s>' ~ m.role ~ ':' }}\
                    {%- for part in m.content.split(' ')[::-1] %}{{ part | upper | trim }}{% endfor %}\
                    {{ range(3) | list | tojson }}{% endfor %}{% macro ab(x) %}{{ x * 3 }}{% endmacro %}\
                    {{ ab('a') }}{% if add_generation_prompt %}{{ '</s>' }}{% endif %}";
    let [tokenizer, _]: [File; 2] = small_texts().try_into().unwrap();
    let length = template.len();
    let files = [("chat_template.jinja", template.as_bytes().to_vec(), length)];
    let own = tempfile::tempdir().unwrap();
    let path = own.path().join("tokenizer.json");
    std::fs::write(&path, tokenizer.1).unwrap();
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    mutate(&files, 6_000, |folder| {
        let template = ChatTemplate::from_folder(folder).map_err(|error| error.to_string())?;
        let template = template.expect("it is there");
        let messages = [Message::text(Role::User, "abc ab"), Message::text(Role::Assistant, "a")];
        match template.ids(&tokenizer, &messages, true) {
            Ok(_) => Ok(()),
            // The vocabulary has hardly a letter, so most text that damage makes is refused by it.
            Err(error) => Err(format!("{}: {error}", folder.display())),
        }
    });
}
