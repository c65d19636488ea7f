//! Hosting: the footprint of a model, the budget over several, pages without hidden rows, and two
//! models in one process.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use unsay::device::cpu::Cpu;
use unsay::device::{HiddenAt, KvType, PageId};
use unsay::engine::plan::{Budget, MemorySize, PlanError};
use unsay::engine::{EngineError, EngineOptions, Sampling, Tag};
use unsay::llm::{
    self, Ask, Host, HostError, HostModel, HostOptions, Hosting, Llm, Opening, SilentSink,
};
use unsay::model::{Batch, Decoder, Footprint, LoadOptions, ModelError, Row, Transformer};
use unsay::store::{Cache, Gguf, ModelFiles, StoreError, WeightType};
use unsay::text::{Role, TokenId};

use crate::model::tiny::{Numbers, Tiny};
use crate::support;

fn default_files() -> ModelFiles {
    ModelFiles::Gguf(Gguf::open(&support::default_model()).unwrap())
}

fn load(files: &ModelFiles, keep_hidden: bool) -> Transformer<Cpu> {
    let options = LoadOptions { pages: 64, keep_hidden, ..LoadOptions::default() };
    Transformer::load_with(Cpu::new(2).unwrap(), files, &options).unwrap()
}

fn table() -> Vec<PageId> {
    // Not in order, so that pages and rows of a batch cannot be mistaken for each other.
    (0..40).map(|page| PageId(63 - page)).collect()
}

fn forward(model: &mut dyn Decoder, from: usize, ids: &[u32]) {
    let row = |(i, &id): (usize, &u32)| Row {
        slot: 0,
        position: from + i,
        token: TokenId(id),
        adapter: None,
    };
    let rows: Vec<Row> = ids.iter().enumerate().map(row).collect();
    let bad = model.forward(&Batch { rows: &rows, tables: &[&table()] }).unwrap();
    assert!(bad.is_empty(), "{bad:?}");
}

fn at(position: usize) -> HiddenAt {
    HiddenAt { page: table()[position / 16], offset: position % 16 }
}

fn logits(model: &mut dyn Decoder, places: &[HiddenAt]) -> Result<Vec<u32>, ModelError> {
    let mut out = vec![0.0; places.len() * model.vocab_size()];
    model.logits(places, &mut out)?;
    Ok(out.into_iter().map(f32::to_bits).collect())
}

#[test]
fn logits_have_the_same_bits_without_kept_hidden_rows() {
    let files = Tiny::new("qwen3", WeightType::Q4_1).files();
    let (mut with, mut without) = (load(&files, true), load(&files, false));
    assert!(with.keeps_hidden() && !without.keeps_hidden());
    assert_eq!(with.page_bytes() - without.page_bytes(), 16 * 64 * 4);
    let ids = Numbers(3).ids(600, 77);
    // A batch of several passes, then a few rows, then one.
    for (from, to) in [(0, 590), (590, 599), (599, 600)] {
        let mut places = Vec::new();
        for model in [&mut with, &mut without] {
            forward(model, from, &ids[from..to]);
            places = [from, (from + to) / 2, to - 1].map(at).to_vec();
            places.extend((from..to).filter(|p| [255, 256, 511, 512].contains(p)).map(at));
        }
        let expected = logits(&mut with, &places).unwrap();
        assert_eq!(logits(&mut without, &places).unwrap(), expected, "{from}..{to}");
    }
}

#[test]
fn without_kept_hidden_rows_only_the_last_forward_pass_is_known() {
    let files = Tiny::new("llama", WeightType::Q8_0).files();
    let mut model = load(&files, false);
    let ids = Numbers(4).ids(20, 77);
    assert!(matches!(
        logits(&mut model, &[at(0)]),
        Err(ModelError::HiddenNotKept { index: 0, page: 63, offset: 0 })
    ));
    forward(&mut model, 0, &ids[..18]);
    let last = logits(&mut model, &[at(17)]).unwrap();
    // A batch that is refused changes nothing.
    let beyond = [Row { slot: 0, position: 18, token: TokenId(77), adapter: None }];
    model.forward(&Batch { rows: &beyond, tables: &[&table()] }).unwrap_err();
    assert_eq!(logits(&mut model, &[at(17)]).unwrap(), last);
    // A copy of the page holds the same positions, as far as the batch knew them.
    let copy = HiddenAt { page: PageId(3), offset: 1 };
    model.copy_page(at(17).page, PageId(3));
    assert_eq!(logits(&mut model, &[copy]).unwrap(), last);
    model.discard_page(PageId(3));
    assert!(logits(&mut model, &[copy]).is_err());
    forward(&mut model, 18, &ids[18..19]);
    assert!(logits(&mut model, &[at(18)]).is_ok());
    let refused = logits(&mut model, &[at(18), at(17)]).unwrap_err();
    assert!(matches!(refused, ModelError::HiddenNotKept { index: 1, offset: 1, .. }));
    assert!(refused.to_string().contains("without kept hidden rows"), "{refused}");
    // Copying a page that the last batch does not know takes from the target what it knew.
    model.copy_page(at(0).page, at(18).page);
    assert!(logits(&mut model, &[at(18)]).is_err());
    // Outside the arena is refused as ever.
    let outside = HiddenAt { page: PageId(64), offset: 0 };
    assert!(matches!(logits(&mut model, &[outside]), Err(ModelError::NoSuchHidden { .. })));
}

/// Bytes of the matrices of a [`Tiny`] as (outputs, inputs).
fn matrices(tiny: &Tiny) -> Vec<(usize, usize)> {
    let (q, kv) = (tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim);
    let (h, f) = (tiny.hidden, tiny.ffn);
    let layer = [(q, h), (kv, h), (kv, h), (h, q), (f, h), (f, h), (h, f)];
    let heads = [(tiny.vocab, h); 2];
    (0..tiny.layers).flat_map(|_| layer).chain(heads).collect()
}

#[test]
fn a_footprint_is_what_the_headers_say() {
    let norms = |tiny: &Tiny| 4 * tiny.hidden * (2 * tiny.layers + 1);
    let options = LoadOptions { pages: 10, ..LoadOptions::default() };
    // Block formats are held in whole panels of eight rows.
    let tiny = Tiny::new("llama", WeightType::Q4_1);
    let footprint = Footprint::of(&tiny.files(), &options).unwrap();
    let blocks: usize = matrices(&tiny)
        .into_iter()
        .map(|(outputs, inputs)| outputs.next_multiple_of(8) * inputs / 32 * 20)
        .sum();
    assert_eq!(footprint.held_weights, (blocks + norms(&tiny)) as u64);
    assert_eq!(footprint.mapped_weights, 0);
    // 160 positions of 12 cosines and 12 sines.
    assert_eq!(footprint.rope, 160 * 24 * 4);
    assert_eq!(footprint.with_pages(usize::MAX).rope, 1024 * 24 * 4);
    assert_eq!((footprint.context, footprint.vocab), (1024, 77));
    let buffers = 4 * 256 * (3 * 64 + 2 * 96 + 2 * 48 + 2 * 96);
    let inputs = 256 * (64 + 96 + 96);
    assert!(
        (buffers + inputs..buffers + 2 * inputs).contains(&(footprint.work as usize)),
        "{footprint:?}"
    );
    // Plain types stay where they lie.
    let tiny = Tiny::new("qwen2", WeightType::F16);
    let footprint = Footprint::of(&tiny.files(), &options).unwrap();
    let plain: usize = matrices(&tiny).into_iter().map(|(o, i)| 2 * o * i).sum();
    let biases = 4 * tiny.layers * (tiny.heads + 2 * tiny.kv_heads) * tiny.head_dim;
    assert_eq!(footprint.mapped_weights, plain as u64);
    assert_eq!(footprint.held_weights, (norms(&tiny) + biases) as u64);
    for (kv, keep_hidden) in
        [(KvType::F16, true), (KvType::F16, false), (KvType::F32, true), (KvType::F32, false)]
    {
        let options = LoadOptions { kv, keep_hidden, pages: 4, ..LoadOptions::default() };
        let footprint = Footprint::of(&tiny.files(), &options).unwrap();
        let decoder = unsay::model::load(&tiny.files(), &options).unwrap();
        assert_eq!(footprint.page_bytes, decoder.page_bytes() as u64);
        assert_eq!(footprint.context, decoder.context_length());
    }
}

#[test]
fn a_footprint_refuses_what_loading_refuses() {
    let files = Tiny::new("llama", WeightType::Q4_0).files();
    for options in [
        LoadOptions { context: Some(0), ..LoadOptions::default() },
        LoadOptions { context: Some(1025), ..LoadOptions::default() },
        LoadOptions { pages: 0, ..LoadOptions::default() },
    ] {
        let planned = Footprint::of(&files, &options).unwrap_err().to_string();
        let loaded = unsay::model::load(&files, &options).err().unwrap().to_string();
        assert_eq!(planned, loaded);
    }
    let extra = Tiny::new("llama", WeightType::F32).builder().tensor("more", 0, &[1], &[0; 4]);
    let refused = Footprint::of(&crate::model::tiny::open(&extra), &LoadOptions::default());
    assert!(refused.unwrap_err().to_string().contains("more"));
}

fn model(name: &str, kv: KvType, context: usize) -> HostModel {
    HostModel { kv, context: Some(context), ..HostModel::new(name, default_files()) }
}

/// The default model twice, with other contexts and ways to keep keys and values.
fn pair() -> Host {
    let models = vec![model("generator", KvType::F16, 512), model("verifier", KvType::F32, 256)];
    llm::host(models, HostOptions { threads: 2, ..HostOptions::default() }).unwrap()
}

fn opening() -> Opening {
    Opening {
        system: None,
        method: "hosting".into(),
        item: "item".into(),
        role: "role".into(),
        sample: 0,
        seed: 0,
        sink: std::sync::Arc::new(SilentSink),
    }
}

async fn says(host: &Host, name: &str) -> (String, Vec<u32>) {
    let mut dialogue = host.llm(name).unwrap().open(opening()).await.unwrap();
    dialogue.say(Role::User, "Name three rivers.");
    let reply = dialogue.reply(&Ask { max_tokens: 12, ..Ask::default() }).await.unwrap();
    (reply.text, reply.tokens.iter().map(|t| t.logprob.unwrap().to_bits()).collect())
}

#[tokio::test]
async fn two_models_in_one_process_say_what_each_says_alone() {
    let both = pair();
    let names: Vec<&str> = both.engine.models().iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["generator", "verifier"]);
    let contexts: Vec<usize> = both.engine.models().iter().map(|m| m.context_length).collect();
    assert_eq!(contexts, [512, 256]);
    // At the same time, in turns of one engine.
    let (one, other) = tokio::join!(says(&both, "generator"), says(&both, "verifier"));
    for (name, kv, said) in [("generator", KvType::F16, &one), ("verifier", KvType::F32, &other)] {
        let alone = llm::host(vec![model(name, kv, 256)], HostOptions::default()).unwrap();
        assert_eq!(says(&alone, name).await, *said);
    }
    assert_ne!(one.1, other.1, "f16 and f32 keys and values round differently");
    both.engine.check().await.unwrap();
    let ledger = both.engine.ledger().await.unwrap();
    ledger.check().unwrap();
    assert_eq!(ledger.models.len(), 2);
    assert!(ledger.models.iter().all(|model| model.forwarded_rows > 0));
    // Each arena could hold all of the shared memory.
    let plan = &both.plan;
    for (planned, hosted) in plan.models.iter().zip(both.engine.models()) {
        assert_eq!(planned.page_count, hosted.page_count);
        assert_eq!(planned.page_count as u64, plan.page_memory / planned.page_bytes);
    }
    let wanted = 3 * (32 * plan.models[0].page_bytes + 16 * plan.models[1].page_bytes);
    assert_eq!(plan.page_memory, wanted);
    assert!(matches!(both.llm("judge"), Err(HostError::Engine(EngineError::UnknownModel { .. }))));
}

#[test]
fn hosting_refuses_before_it_loads() {
    let host = |models, budget| {
        Hosting::plan(models, HostOptions { budget, ..HostOptions::default() }).err().unwrap()
    };
    let twice = vec![model("a", KvType::F16, 256), model("a", KvType::F16, 256)];
    let refused = host(twice, Budget::default());
    assert!(matches!(refused, HostError::Engine(EngineError::DuplicateModel { .. })), "{refused}");
    let refused = host(Vec::new(), Budget::default());
    assert!(matches!(refused, HostError::Plan(PlanError::NoModels)));
    let small = Budget { memory: Some(MemorySize(150 << 20)), page_memory: None };
    let pair = vec![model("a", KvType::F16, 256), model("b", KvType::F16, 256)];
    let refused = host(pair, small);
    let HostError::Plan(PlanError::WeightsDoNotFit { .. }) = refused else { panic!("{refused}") };
    let words = refused.to_string();
    for word in ["150 MiB", "a 1", "b 1", "weights 92", "fewer models", "quantisation"] {
        assert!(words.contains(word), "{word}: {words}");
    }
}

#[tokio::test]
async fn the_pages_of_a_small_budget_bound_the_context() {
    let budget = Budget { memory: None, page_memory: Some(MemorySize(16 << 20)) };
    let own = HostModel::new("small", default_files());
    let host = llm::host(vec![own], HostOptions { budget, ..HostOptions::default() }).unwrap();
    // 41 pages of 405,504 bytes.
    assert_eq!(host.plan.models[0].context, 41 * 16);
    // The engine's own option says the same where the budget says nothing, and gives way to it.
    for (budget, engine) in [(Budget::default(), 16 << 20), (budget, 32 << 20)] {
        let engine = EngineOptions { page_memory: Some(engine), ..EngineOptions::default() };
        let options = HostOptions { budget, engine, ..HostOptions::default() };
        let own = HostModel::new("small", default_files());
        let planned = Hosting::plan(vec![own], options).unwrap();
        assert_eq!(planned.memory().page_memory, 16 << 20);
    }
    assert_eq!(host.engine.models()[0].context_length, 41 * 16);
    let mut session = host.engine.open("small", None).await.unwrap();
    let ids = vec![TokenId(5); 41 * 16 + 1];
    let refused = session.append(&ids).await.unwrap_err();
    assert!(matches!(refused, EngineError::ContextOverflow { limit: 656, .. }), "{refused}");
    session.append(&ids[..655]).await.unwrap();
    let sampling = Sampling { max_tokens: 1, ..Sampling::default() };
    let reply = session.generate(&sampling, &Tag::new("fill", 1)).await.unwrap();
    assert_eq!(reply.collect().await.unwrap().tokens.len(), 1);
}

/// A field of a process's status in bytes.
#[cfg(target_os = "linux")]
fn status(pid: u32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
#[cfg(target_os = "linux")]
fn a_loaded_model_takes_what_was_planned_and_not_its_file_beside() {
    use std::io::Read;
    let plan = Hosting::plan(vec![HostModel::new("m", default_files())], HostOptions::default());
    let plan = plan.unwrap().memory().clone();
    let words = ["generate", "--prompt", "Rivers are", "--max-tokens", "4000", "--threads", "2"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The first piece of the reply is there: everything is loaded, and one page is written.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let (peak, resident) = (status(child.id(), "VmHWM:"), status(child.id(), "VmRSS:"));
    child.kill().unwrap();
    child.wait().unwrap();
    let weights = plan.models[0].parts.held_weights;
    let planned = plan.total - plan.page_memory;
    // A large page of the system may be ahead of what was written; a batch of tensors was mapped
    // while it was copied.
    assert!(resident > weights && resident < planned + (2 << 20), "{resident} of {planned}");
    assert!(peak < planned + (18 << 20), "{peak} of {planned}");
}

/// `unsay` with these words and variables.
fn unsay(words: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(words)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[track_caller]
fn refused(words: &[&str], code: i32, says: &[&str]) {
    let output = unsay(words, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stderr}");
    for word in says {
        assert!(stderr.contains(word), "{words:?}: {word}: {stderr}");
    }
}

#[test]
fn budgets_that_cannot_be_are_refused_with_value_and_limit() {
    let generate = |more: &[&'static str]| [&["generate", "--prompt", "a"][..], more].concat();
    refused(&generate(&["--memory", "6 bananas"]), 2, &["6 bananas", "GiB"]);
    refused(&generate(&["--memory", "-5GiB"]), 2, &["-5GiB", "negative"]);
    refused(&generate(&["--pages-memory", "0"]), 2, &["no memory at all"]);
    refused(&generate(&["--memory", "8000TiB"]), 2, &["more than there is", "give at most"]);
    refused(&generate(&["--memory", "60MiB"]), 2, &["60 MiB given", "weights 92", "ways out"]);
    refused(&generate(&["--pages-memory", "1MiB"]), 2, &["256 positions", "--context"]);
    refused(&generate(&["--memory", "300MiB", "--context", "8192"]), 2, &["8192", "ways out"]);
    let more_pages = generate(&["--memory", "300MiB", "--pages-memory", "290MiB"]);
    refused(&more_pages, 2, &["290 MiB", "300 MiB given"]);
}

#[test]
fn the_plan_is_told_before_loading_and_is_in_the_json() {
    let question =
        ["solve", "--method", "direct", "--max-tokens", "4", "--memory", "300MiB", "2+2?"];
    let output = unsay(&question, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().find(|line| line.starts_with("plan: ")).expect("a plan");
    assert!(line.contains("weights 92") && line.contains("300 MiB given"), "{line}");
    assert!(stderr.find("plan: ") < stderr.find("loaded in"), "{stderr}");
    let table = unsay(&[&question[..], &["--verbose"]].concat(), &[]);
    let stderr = String::from_utf8_lossy(&table.stderr);
    for word in ["work buffers", "tables of rotations", "the process itself", "limit: 300 MiB"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    let output = unsay(&[&question[..], &["--json"]].concat(), &[]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let memory = &report["memory"];
    let number = |value: &Value| value.as_u64().unwrap();
    let model = &memory["models"][0];
    let parts: u64 = model["parts"].as_object().unwrap().values().map(number).sum();
    let shared = ["page_memory", "logits", "process"].map(|part| number(&memory[part]));
    let sum = parts + shared.iter().sum::<u64>();
    assert_eq!(number(&memory["total"]), sum);
    assert!(sum <= 300 << 20);
    assert_eq!(number(&memory["limit"]["bytes"]), 300 << 20);
    assert_eq!(memory["limit"]["from"], "given");
    assert!(number(&model["context"]) < 8192, "what the pages hold: {model}");
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_no_file_is_no_model_and_nothing_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.gguf");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let path = pipe.to_str().unwrap();
    refused(&["tokenize", "x", "--model", path], 2, &["pipe.gguf", "not a regular file"]);
    let below = folder.path().join("pipe.gguf/model.gguf");
    refused(&["tokenize", "x", "--model", below.to_str().unwrap()], 2, &["model.gguf"]);
    // In the cache, where a pulled model lies.
    let cache = Cache::at(folder.path());
    let place = cache.model_folder("smollm2-135m-instruct");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::rename(&pipe, place.join("SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap();
    let opened = HostModel::open("smollm2-135m-instruct", &cache);
    assert!(matches!(opened, Err(StoreError::NotAModel { .. })), "{:?}", opened.err());
    let output = unsay(&["models"], &[("UNSAY_CACHE", folder.path().to_str().unwrap())]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("unreadable"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_folder_for_temporary_files_that_is_not_there_is_missing_on_the_machine() {
    let output = unsay(&["solve", "2+2?"], &[("TMPDIR", "/nowhere/at/all")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("TMPDIR") && stderr.contains("/nowhere/at/all"), "{stderr}");
}
