//! Tokenizers that were refused or gave other ids; templates that failed, changed the past, or were
//! followed by the wrong tokens. Each names its row of the list of faults and the
//! public issue where it was reported.

use std::path::Path;

use serde_json::json;
use unsay::llm::{Llm, Role, Thinking};
use unsay::store::{Gguf, ModelFiles, SafetensorsModel};
use unsay::text::{ChatTemplate, Message, TokenId, Tokenizer, stop_ids};

use crate::engine::fake::block_on;
use crate::support::{self, gunzip};
use crate::text::check_ids;
use crate::text::families::{FAMILIES, as_gguf, load, shared};
use crate::thinking::{SWITCHED, ask, letters, model, opening, refusal, template};

/// E18, candle 3670: a GGUF tokenizer of kind `llama` without merges was refused. It is rebuilt from
/// its scores.
#[test]
fn e18_a_vocabulary_of_scores_without_merges() {
    let pieces = [("▁", -9.0), ("n", -9.0), ("o", -9.0), ("no", -1.0), ("▁no", -2.0)];
    let builder = crate::pieces::gguf(&pieces, &[]);
    let tokenizer = crate::pieces::read(&builder).unwrap();
    // ▁ n o: no (-1), then ▁no (-2). Behind it n and o are `no`, too.
    assert_eq!(tokenizer.encode("nono").unwrap(), [TokenId(263), TokenId(262)]);
    assert_eq!(tokenizer.decode(&[TokenId(263)]), " no");
    // Merges beside the scores, of whatever kind, change nothing.
    let merges = builder.strings("tokenizer.ggml.merges", ["o n"]);
    let same = crate::pieces::read(&merges).unwrap();
    assert_eq!(same.encode("nono").unwrap(), [TokenId(263), TokenId(262)]);
}

/// E19, llama.cpp 23252: token ids from the GGUF tokenizer differed from the original tokenizer's.
/// Equal on 2,000 fuzzed texts a family (digits, spaces, CJK, emoji, special tokens in text), with
/// special tokens parsed and as text.
#[test]
fn e19_ids_from_gguf_are_the_original_ids() {
    let Some(data) = shared("e19_ids_from_gguf_are_the_original_ids") else { return };
    let temporary = tempfile::tempdir().unwrap();
    for (family, pre) in FAMILIES {
        let folder = data.join("tokenizers").join(family);
        let fixture = folder.join("ids.jsonl.gz");
        check_ids(&load(&data, family).0, &fixture);
        let json = serde_json::from_slice(&gunzip(&folder.join("tokenizer.json.gz"))).unwrap();
        let path = temporary.path().join(family);
        std::fs::write(&path, as_gguf(&json, pre).build()).unwrap();
        let from_gguf = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
        check_ids(&from_gguf, &fixture);
    }
}

/// The other way round, for the model whose original here is a GGUF file.
#[test]
fn e19_ids_from_tokenizer_json_are_those_of_the_gguf_file() {
    let gguf = Gguf::open(&support::default_model()).unwrap();
    let metadata = gguf.metadata();
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap();
    let kinds = metadata.i32s("tokenizer.ggml.token_type").unwrap();
    let vocabulary: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
    let special = (0..).zip(&tokens).zip(&kinds).filter(|(_, kind)| **kind == 3);
    let added: Vec<_> = special
        .map(|((id, token), _): ((usize, _), _)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let level = |regex: bool| {
        json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": regex})
    };
    let cuts = json!([{"type": "Digits", "individual_digits": true}, level(true)]);
    let json = json!({"version": "1.0", "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": cuts},
        "post_processor": null, "decoder": level(true),
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary,
            "merges": metadata.strings("tokenizer.ggml.merges").unwrap()}});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    let tokenizer = Tokenizer::from_file(&path).unwrap();
    check_ids(&tokenizer, &support::data("smollm2/ids.jsonl.gz"));
}

/// E9, Qwen3 1826: an empty think block vanished from the history, so the prefix changed. What was
/// generated stays as it was, with what stood before it; nothing is dropped or computed again.
#[test]
fn e09_an_empty_think_block_stays_in_the_history() {
    let tokenizer = letters();
    let ids = |text: &str| tokenizer.encode_template(text).unwrap();
    let lead = "<turn>assistant\n<think>\n\n</think>\n\n";
    let first = format!("<turn>user\nq</turn>\n{lead}");
    let next = format!("</turn>\n<turn>user\nmore</turn>\n{lead}");
    let script = ids(&format!("{first}yes{next}no</turn>"));
    let script: Vec<u32> = script.iter().map(|id| id.0).collect();
    let thinking = Thinking { switch: Some(false), budget: None };
    let model = model(SWITCHED, &script).with_thinking(thinking, Path::new("m.gguf")).unwrap();
    block_on(async {
        let mut dialogue = model.open(opening()).await.unwrap();
        dialogue.say(Role::User, "q");
        let reply = dialogue.reply(&ask(9)).await.unwrap();
        assert_eq!(
            (reply.text.as_str(), reply.cost.prompt_tokens),
            ("yes", ids(&first).len() as u64)
        );
        dialogue.say(Role::User, "more");
        let mark = dialogue.mark();
        let again = dialogue.reply(&ask(9)).await.unwrap();
        assert_eq!((again.text.as_str(), again.cost.dropped_tokens), ("no", 0));
        let held = (ids(&first).len() + 3) as u64;
        assert_eq!(again.cost.cached_tokens, held);
        assert_eq!(again.cost.computed_tokens, ids(&next).len() as u64);
        // A retry computes nothing.
        let taken = dialogue.rewind(mark).await.unwrap();
        assert_eq!(taken.messages.len(), 1);
        assert_eq!(dialogue.reply(&ask(9)).await.unwrap().cost.computed_tokens, 0);
        model.engine().ledger().await.unwrap().check().unwrap();
    });
}

/// E9 where it cannot be so: a turn that was said as text, which the template writes differently once
/// it is past. What both begin with stays, and the ids that were given up are counted.
#[test]
fn e09_a_rewritten_turn_is_dropped_and_counted() {
    let tokenizer = letters();
    let length = |text: &str| tokenizer.encode_template(text).unwrap().len() as u64;
    let model = model(SWITCHED, &[]);
    block_on(async {
        let mut dialogue = model.open(opening()).await.unwrap();
        dialogue.say(Role::User, "q");
        dialogue.say(Role::Assistant, "<think>a</think>b");
        let reply = dialogue.reply(&ask(1)).await.unwrap();
        let kept = length("<turn>user\nq</turn>\n<turn>assistant\n");
        let lost = length("<think>a</think>b</turn>\n<turn>assistant\n");
        assert_eq!((reply.cost.prompt_tokens, reply.cost.dropped_tokens), (kept + lost, 0));
        dialogue.say(Role::User, "more");
        let next = dialogue.reply(&ask(1)).await.unwrap();
        let drawn = reply.ids.len() as u64;
        assert_eq!((next.cost.cached_tokens, next.cost.dropped_tokens), (kept, lost + drawn));
        assert_eq!(dialogue.cost().dropped_tokens, lost + drawn);
    });
}

/// E20, minijinja 815, frontend-crates 179, mistral.rs 1129-1132: chat templates with
/// `{% generation %}`, `fromjson` and `strftime_now` failed.
#[test]
fn e20_templates_with_functions_of_transformers() {
    let tokenizer = letters();
    let source = "{%- for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}
{%- endfor %}{% set call = '{\"name\": \"sum\"}' | fromjson %}{{ call.name }}
{%- if strftime_now('%Y') | int > 2000 %}late{% endif %}
{%- set ns = namespace(n='') %}{% for c in ['x', 'y'] %}{% set ns.n = ns.n + c %}{% endfor %}{{ ns.n }}
{%- if ({'a': 'é'} | tojson(ensure_ascii=False)) == '{\"a\": \"é\"}' %}same{% endif %}
{{- 'ZED'.lower().removeprefix('z') }}{% for i in range(9) %}{% if i > 0 %}{% break %}{% endif %}j
{%- endfor %}";
    let messages = [Message::text(Role::User, "hi")];
    let ids = template(source).ids(&tokenizer, &messages, false).unwrap();
    assert_eq!(tokenizer.decode(&ids), "hisumlatexysameedj");
}

/// E21, llama.cpp 11402: a template's `raise_exception` broke loading. Its message is shown, for that
/// request only.
#[test]
fn e21_a_template_that_raises() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}\
                  {{ raise_exception('System role not supported') }}{% endif %}\
                  {% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
                  {{ raise_exception('Roles must alternate') }}{% endif %}\
                  <turn>{{ m.content }}</turn>{% endfor %}";
    // Loading it asks it for the end of a turn and for its switches, and it may refuse.
    assert_eq!(template(source).turn_end(&letters()).unwrap(), Some(TokenId(30)));
    let always = "{{ raise_exception('Not today') }}";
    assert_eq!(template(always).turn_end(&letters()).unwrap(), None);
    let model = model(source, &[]);
    block_on(async {
        for (texts, message) in [
            (&[(Role::System, "s"), (Role::User, "q")][..], "System role not supported"),
            (&[(Role::User, "q"), (Role::User, "q")], "Roles must alternate"),
        ] {
            let error = refusal(&model, texts).await.unwrap_err().to_string();
            assert_eq!(error, format!("the chat template of fake refused the dialogue: {message}"));
            assert!(refusal(&model, &[(Role::User, "q")]).await.is_ok());
        }
    });
}

/// E22, vllm 4180: Llama-3 ran on past `<|eot_id|>`. The ids that end a reply are those of config.json,
/// of generation_config.json (a number or a list), of the tokenizer, and the template's own end.
#[test]
fn e22_a_reply_ends_at_every_stop_id() {
    let Some(data) = shared("e22_a_reply_ends_at_every_stop_id") else { return };
    let folder = tempfile::tempdir().unwrap();
    let family = data.join("tokenizers/llama3_1");
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let content = gunzip(&family.join(format!("{file}.gz")));
        std::fs::write(folder.path().join(file), content).unwrap();
    }
    let weights = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0; 4]);
    let weights = vec![("w".to_owned(), weights.unwrap())];
    safetensors::serialize_to_file(weights, None, &folder.path().join("model.safetensors"))
        .unwrap();
    let stops = |config: serde_json::Value, generation: serde_json::Value| {
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let path = folder.path().join("generation_config.json");
        std::fs::write(path, generation.to_string()).unwrap();
        let files = ModelFiles::Safetensors(SafetensorsModel::open(folder.path()).unwrap());
        let tokenizer = Tokenizer::of_model(&files).unwrap();
        let template = ChatTemplate::required(&files).unwrap();
        let ids = stop_ids(&files, &tokenizer, Some(&template)).unwrap();
        ids.iter().map(|id| id.0).collect::<Vec<_>>()
    };
    // <|end_of_text|>, <|eom_id|>, <|eot_id|>: the last one also where no config names it.
    let (number, list) = (json!({"eos_token_id": 128_001}), json!([128_001, 128_008, 128_009]));
    let listed = json!({"eos_token_id": list});
    assert_eq!(stops(number.clone(), listed.clone()), [128_001, 128_008, 128_009]);
    assert_eq!(stops(listed, number.clone()), [128_001, 128_008, 128_009]);
    assert_eq!(stops(number.clone(), json!({})), [128_001, 128_009]);
    assert_eq!(stops(json!({}), json!({})), [128_009]);
}

/// E23, evalplus 207, reward-bench 164: a second BOS was added to a templated prompt and cost points.
#[test]
fn e23_bos_stands_once() {
    // A vocabulary whose texts begin with BOS, and templates that write it never, once and twice.
    let adding =
        crate::pieces::read(&crate::pieces::gguf(&[("▁a", -1.0), ("▁", -2.0), ("a", -3.0)], &[]));
    let adding = adding.unwrap();
    assert!(adding.adds_bos() && adding.bos() == Some(TokenId(1)));
    for written in ["", "{{ bos_token }}", "<s>", "{{ bos_token }}<s>"] {
        let source = format!("{written}{{{{ messages[0].content }}}}");
        let messages = [Message::text(Role::User, "a")];
        let ids = template(&source).ids(&adding, &messages, false).unwrap();
        assert_eq!(ids, [1, 259].map(TokenId), "{written}");
        // One that a user writes is text.
        let messages = [Message::text(Role::User, "<s>")];
        let ids = template(&source).ids(&adding, &messages, false).unwrap();
        assert_eq!(ids.iter().filter(|id| **id == TokenId(1)).count(), 1, "{written}");
    }
    let Some(data) = shared("e23_bos_stands_once") else { return };
    let (tokenizer, template) = load(&data, "llama3_1");
    let bos = tokenizer.bos().unwrap();
    for texts in [&["hi"][..], &["hi", "there", "<|begin_of_text|>"]] {
        let messages: Vec<_> = texts.iter().map(|text| Message::text(Role::User, text)).collect();
        let ids = template.ids(tokenizer, &messages, true).unwrap();
        assert_eq!(ids[0], bos);
        assert_eq!(ids.iter().filter(|id| **id == bos).count(), 1);
    }
}
