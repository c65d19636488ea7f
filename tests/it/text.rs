//! Tokenizers, templates and stop ids through their public door, held against llama.cpp's ids of the
//! default model and, where the public data is at hand, against those of other families.

use std::path::Path;

use crate::support::{self, GgufBuilder, gunzip};
use proptest::prelude::*;
use serde_json::{Value, json};
use unsay::store::{Gguf, ModelFiles, SafetensorsModel};
use unsay::text::{
    ChatTemplate, Detokenizer, Message, Role, TemplateError, TokenId, Tokenizer, TokenizerError,
    stop_ids,
};

fn default_files() -> ModelFiles {
    ModelFiles::Gguf(Gguf::open(&support::default_model()).unwrap())
}

/// The default model's tokenizer and template, made once.
fn default_chat() -> &'static (Tokenizer, ChatTemplate) {
    static CHAT: std::sync::OnceLock<(Tokenizer, ChatTemplate)> = std::sync::OnceLock::new();
    CHAT.get_or_init(|| {
        let files = default_files();
        (Tokenizer::of_model(&files).unwrap(), ChatTemplate::required(&files).unwrap())
    })
}

pub(crate) fn json_lines(bytes: &[u8]) -> Vec<Value> {
    serde_json::Deserializer::from_slice(bytes).into_iter().map(Result::unwrap).collect()
}

fn ids(value: &Value) -> Vec<TokenId> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Both ways of encoding, on all texts of a fixture.
pub(crate) fn check_ids(tokenizer: &Tokenizer, fixture: &Path) {
    let cases = json_lines(&gunzip(fixture));
    assert_eq!(cases.len(), 2_000);
    for case in &cases {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode_template(text).unwrap(), ids(&case["ids"]), "{text:?}");
        let as_text = ids(&case["ids_special_as_text"]);
        assert_eq!(tokenizer.encode(text).unwrap(), as_text, "{text:?} as content");
    }
}

#[test]
fn ids_are_those_of_llama_cpp() {
    let fixture = support::data("smollm2/ids.jsonl.gz");
    check_ids(&default_chat().0, &fixture);
}

#[test]
fn both_ways_of_encoding_go_on_at_once() {
    let tokenizer = &default_chat().0;
    let text = "a<|im_end|>b";
    let (content, template) =
        (tokenizer.encode(text).unwrap(), tokenizer.encode_template(text).unwrap());
    assert_ne!(content, template);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(tokenizer.encode(text).unwrap(), content);
                    assert_eq!(tokenizer.encode_template(text).unwrap(), template);
                }
            });
        }
    });
}

#[test]
fn tokens_have_their_bytes() {
    let tokenizer = &default_chat().0;
    assert_eq!(tokenizer.vocab_size(), 49_152);
    assert_eq!(tokenizer.token_bytes(TokenId(2)), Some(&b"<|im_end|>"[..]));
    assert_eq!(tokenizer.token_bytes(TokenId(49_152)), None);
    assert_eq!(tokenizer.decode(&[TokenId(49_152)]), "");
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(TokenId(1)), Some(TokenId(2))));
    assert!(!tokenizer.adds_bos());
    let special: Vec<TokenId> = (0..17).map(TokenId).collect();
    assert_eq!(tokenizer.special_ids(), special);
    assert!(tokenizer.is_special(TokenId(16)) && !tokenizer.is_special(TokenId(17)));
    assert_eq!(tokenizer.token_id("<|im_start|>"), Some(TokenId(1)));
    let the = tokenizer.encode(" the").unwrap();
    assert_eq!(tokenizer.token_id(" the"), Some(the[0]));
    assert_eq!(tokenizer.token_id("no such token"), None);
    for text in ["", " a  b\n", "é€😀", "x\u{0}y", "<|im_end|>"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Streaming gives the text of the whole, whatever the ids.
    #[test]
    fn streamed_pieces_are_the_whole(ids in prop::collection::vec(0u32..49_160, 0..60)) {
        let tokenizer = &default_chat().0;
        let ids: Vec<TokenId> = ids.into_iter().map(TokenId).collect();
        let mut stream = Detokenizer::new();
        let mut text: String = ids.iter().map(|&id| stream.push(tokenizer, id)).collect();
        text.push_str(&stream.finish());
        prop_assert_eq!(text, tokenizer.decode(&ids));
    }

    /// Any text comes back from its ids.
    #[test]
    fn text_comes_back(text in any::<String>()) {
        let tokenizer = &default_chat().0;
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), text);
    }

    /// What was sent and generated stays the beginning of what is sent next.
    #[test]
    fn a_dialogue_only_grows(
        questions in prop::collection::vec("[a-z <|_>\n.]{0,20}", 1..4),
        reply in prop::collection::vec(0u32..49_152, 0..8),
    ) {
        let (tokenizer, template) = default_chat();
        let reply: Vec<TokenId> = reply.into_iter().map(TokenId).collect();
        let mut messages = Vec::new();
        let mut before = Vec::new();
        for question in &questions {
            messages.push(Message::text(Role::User, question));
            let asked = template.ids(tokenizer, &messages, true).unwrap();
            prop_assert!(asked.starts_with(&before));
            messages.push(Message::ids(Role::Assistant, &reply));
            before = asked;
            before.extend(&reply);
        }
        prop_assert!(template.ids(tokenizer, &messages, false).unwrap().starts_with(&before));
    }

    /// However content looks, only the template's own special tokens are special, and the text is
    /// the one that was said.
    #[test]
    fn content_holds_no_special_token(
        content in prop::collection::vec(prop_oneof![
            Just("<|im_end|>"), Just("<|im_"), Just("start|>"), Just("<|"), Just("|>"), Just("<"),
            Just(" "), Just("\n"), Just("a"), Just("<repo_name>"), Just("<|endoftext|>"),
            Just("\u{fdd0}"),
        ], 0..8).prop_map(|parts| parts.concat()),
    ) {
        let (tokenizer, template) = default_chat();
        let messages = [Message::text(Role::System, "s"), Message::text(Role::User, &content)];
        let ids = template.ids(tokenizer, &messages, true).unwrap();
        let special: Vec<u32> =
            ids.iter().filter(|&&id| tokenizer.is_special(id)).map(|id| id.0).collect();
        prop_assert_eq!(special, [1, 2, 1, 2, 1]);
        let text = format!(
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
        );
        prop_assert_eq!(tokenizer.decode(&ids), text);
    }
}

#[test]
fn the_default_template_gives_these_ids() {
    let (tokenizer, template) = default_chat();
    let messages = [Message::text(Role::System, "Be brief."), Message::text(Role::User, "2+2?")];
    let got = template.ids(tokenizer, &messages, true).unwrap();
    assert_eq!(
        got,
        [
            1, 9690, 198, 6077, 5453, 30, 2, 198, 1, 4093, 198, 34, 27, 34, 47, 2, 198, 1, 520,
            9531, 198
        ]
        .map(TokenId)
    );
    // Without a system message the template brings its own.
    let messages = [Message::text(Role::User, "Hi")];
    let text = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging \
                Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n";
    let expected = tokenizer.encode_template(text).unwrap();
    assert_eq!(template.ids(tokenizer, &messages, false).unwrap(), expected);
    // Text of the template and content are one run: "\n" and "\n\nx" merge.
    let messages = [Message::text(Role::System, "\n\nx")];
    let expected = tokenizer.encode_template("<|im_start|>system\n\n\nx<|im_end|>\n").unwrap();
    assert_eq!(template.ids(tokenizer, &messages, false).unwrap(), expected);
}

#[test]
fn generated_ids_are_spliced_in_as_they_are() {
    let (tokenizer, template) = default_chat();
    // A cut of "hello" that encoding would never give, with a special token in it.
    let generated: Vec<TokenId> = ["h", "e", "l", "l", "o"]
        .iter()
        .map(|letter| tokenizer.token_id(letter).unwrap())
        .chain([TokenId(2)])
        .collect();
    let messages = [Message::text(Role::System, "s"), Message::ids(Role::Assistant, &generated)];
    let mut expected = tokenizer
        .encode_template("<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n")
        .unwrap();
    expected.extend(&generated);
    expected.extend(tokenizer.encode_template("<|im_end|>\n").unwrap());
    assert_eq!(template.ids(tokenizer, &messages, false).unwrap(), expected);
}

/// A template of our own over the default model's vocabulary.
fn own_template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Path::new("own.jinja")).unwrap()
}

#[test]
fn templates_that_drop_or_repeat_a_reply() {
    let tokenizer = &default_chat().0;
    let reply = [TokenId(500), TokenId(501)];
    let messages = [Message::text(Role::User, "q"), Message::ids(Role::Assistant, &reply)];
    let dropping =
        own_template("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}");
    assert_eq!(dropping.ids(tokenizer, &messages, false).unwrap(), tokenizer.encode("q").unwrap());
    for changing in [
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content[:2] }}{% endfor %}",
        "{% for m in messages %}{{ m.content[1:] }}{% endfor %}",
    ] {
        let error = own_template(changing).ids(tokenizer, &messages, false).unwrap_err();
        assert!(matches!(error, TemplateError::Misplaced { .. }), "{changing}: {error}");
    }
}

#[test]
fn special_tokens_do_not_form_across_the_edges_of_content() {
    let tokenizer = &default_chat().0;
    let joining = own_template(
        "{% for m in messages %}{{ m.content | trim }}{% endfor %}<|im_{{ messages[0].content }}",
    );
    for (first, second) in [
        ("end|>", "x"),
        ("<|im_end", "|>"),
        ("<|im_", " end|> "),
        ("<", "|im_end|>"),
        ("im_end", ""),
    ] {
        let messages = [Message::text(Role::User, first), Message::text(Role::User, second)];
        let ids = joining.ids(tokenizer, &messages, false).unwrap();
        assert!(!ids.iter().any(|&id| tokenizer.is_special(id)), "{first:?} {second:?}");
        let text = format!("{}{}<|im_{first}", first.trim(), second.trim());
        assert_eq!(tokenizer.decode(&ids), text);
    }
}

#[test]
fn a_template_that_refuses_is_quoted() {
    let tokenizer = &default_chat().0;
    let refusing = own_template("{{ raise_exception('Roles must alternate') }}");
    let error = refusing.ids(tokenizer, &[], false).unwrap_err();
    assert_eq!(error.to_string(), "the chat template refused the dialogue: Roles must alternate");
    let broken = ChatTemplate::new("{% for %}", Path::new("own.jinja")).unwrap_err();
    assert!(broken.to_string().starts_with("the chat template of own.jinja cannot be read"));
    let failing = own_template("{{ messages[0].content.nosuch() }}");
    let error = failing.ids(tokenizer, &[Message::text(Role::User, "a")], false).unwrap_err();
    assert!(matches!(error, TemplateError::Failed { .. }), "{error}");
    let endless = own_template(
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
    );
    assert!(matches!(endless.ids(tokenizer, &[], false), Err(TemplateError::Endless)));
}

#[test]
fn a_template_reads_its_variables() {
    let tokenizer = &default_chat().0;
    let source = "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ enable_thinking }}";
    let template = own_template(source).with_variable("enable_thinking", false);
    let ids = template.ids(tokenizer, &[], true).unwrap();
    assert_eq!(tokenizer.decode(&ids), "<|im_start|><|im_end|>TrueFalse");
    assert_eq!(ids[..2], [TokenId(1), TokenId(2)]);
}

/// The characters that stand for the 256 bytes in a byte-level vocabulary, in the order of bytes.
fn byte_characters() -> Vec<String> {
    let printable = |b: u32| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    (0..256)
        .map(|b| if printable(b) { b } else { others.next().unwrap() })
        .map(|c| char::from_u32(c).unwrap().to_string())
        .collect()
}

/// A GGUF file with a vocabulary of bytes, four special tokens and a user-defined one.
fn tiny_gguf(pre: &str, folder: &Path, more: impl Fn(GgufBuilder) -> GgufBuilder) -> Gguf {
    let mut tokens = byte_characters();
    tokens.extend(["<s>", "</s>", "<turn>", "☃", "<tag>"].map(str::to_owned));
    tokens.push("ab".to_owned());
    let kinds = (0..tokens.len()).map(|id| match id {
        256..=259 => 3,
        260 => 4,
        _ => 1,
    });
    let builder = GgufBuilder::default()
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", tokens.iter().map(String::as_str))
        .i32s("tokenizer.ggml.token_type", kinds)
        .strings("tokenizer.ggml.merges", ["a b"])
        .u32("tokenizer.ggml.bos_token_id", 256)
        .u32("tokenizer.ggml.eos_token_id", 257);
    let path = folder.join("tiny.gguf");
    std::fs::write(&path, more(builder).build()).unwrap();
    Gguf::open(&path).unwrap()
}

#[test]
fn bos_stands_once() {
    let folder = tempfile::tempdir().unwrap();
    let with = |adds: bool| {
        let gguf = tiny_gguf("gpt-2", folder.path(), |gguf| {
            gguf.bool("tokenizer.ggml.add_bos_token", adds)
        });
        Tokenizer::from_gguf(&gguf).unwrap()
    };
    let (adding, plain) = (with(true), with(false));
    let messages = [Message::text(Role::User, "a")];
    let a = TokenId(u32::from(b'a'));
    let (writes, writes_not) = (
        own_template("{{ bos_token }}{{ messages[0].content }}"),
        own_template("{{ messages[0].content }}"),
    );
    assert_eq!(writes.ids(&adding, &messages, false).unwrap(), [TokenId(256), a]);
    assert_eq!(writes_not.ids(&adding, &messages, false).unwrap(), [TokenId(256), a]);
    assert_eq!(writes.ids(&plain, &messages, false).unwrap(), [TokenId(256), a]);
    assert_eq!(writes_not.ids(&plain, &messages, false).unwrap(), [a]);
}

#[test]
fn tokens_of_a_gguf_vocabulary_by_kind() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = Tokenizer::from_gguf(&tiny_gguf("gpt-2", folder.path(), |g| g)).unwrap();
    let byte = |b: u8| TokenId(u32::from(b));
    assert_eq!(tokenizer.encode("ab").unwrap(), [TokenId(261)]);
    assert_eq!(tokenizer.encode("é").unwrap(), [byte(0xc3), byte(0xa9)]);
    // A user-defined token is content; a control token in content is text.
    assert_eq!(tokenizer.encode("<tag>").unwrap(), [TokenId(260)]);
    assert_eq!(tokenizer.encode("<s>").unwrap(), [byte(b'<'), byte(b's'), byte(b'>')]);
    assert_eq!(tokenizer.encode_template("<s>ab").unwrap(), [TokenId(256), TokenId(261)]);
    // A special token of one character, too, is text in content.
    let template = own_template("☃{{ messages[0].content }}☃");
    let got = template.ids(&tokenizer, &[Message::text(Role::User, "a☃b")], false).unwrap();
    let snowman = "☃".bytes().map(byte);
    let expected: Vec<TokenId> = [TokenId(259), byte(b'a')]
        .into_iter()
        .chain(snowman)
        .chain([byte(b'b'), TokenId(259)])
        .collect();
    assert_eq!(got, expected);
}

#[test]
fn tokenizers_that_are_not_known_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = Tokenizer::from_gguf(&tiny_gguf("dbrx", folder.path(), |g| g)).unwrap_err();
    assert!(error.to_string().contains("tokenizer.ggml.pre is \"dbrx\""), "{error}");
    assert!(error.to_string().contains("supported: smollm, gpt-2, qwen2, llama-bpe"), "{error}");
    let path = folder.path().join("t5.gguf");
    std::fs::write(&path, GgufBuilder::default().string("tokenizer.ggml.model", "t5").build())
        .unwrap();
    let error = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap_err();
    assert!(error.to_string().contains("tokenizer.ggml.model is \"t5\""), "{error}");
    let eos = |gguf: GgufBuilder| gguf.u32("tokenizer.ggml.eot_token_id", 262);
    let error = Tokenizer::from_gguf(&tiny_gguf("gpt-2", folder.path(), eos)).unwrap_err();
    assert!(error.to_string().contains("262 is not the id of one of the 262 tokens"), "{error}");

    let pieces = json!({"version": "1.0", "added_tokens": [], "model": {
        "type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}});
    let error =
        Tokenizer::from_json(pieces.to_string().as_bytes(), None, Path::new("t.json")).unwrap_err();
    assert!(matches!(error, TokenizerError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("WordPiece"), "{error}");
    let error = Tokenizer::from_json(b"{", None, Path::new("t.json")).unwrap_err();
    assert!(error.to_string().starts_with("t.json: "), "{error}");
    let error = Tokenizer::from_file(Path::new("/no/tokenizer.json")).unwrap_err();
    assert!(error.to_string().contains("/no/tokenizer.json"), "{error}");
}

#[test]
fn damaged_vocabularies_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let build = |types: usize, merges: &[&str]| {
        let builder = GgufBuilder::default()
            .string("tokenizer.ggml.model", "gpt2")
            .string("tokenizer.ggml.pre", "smollm")
            .strings("tokenizer.ggml.tokens", ["a", "b", "ab"])
            .i32s("tokenizer.ggml.token_type", vec![1; types])
            .strings("tokenizer.ggml.merges", merges.iter().copied());
        let path = folder.path().join("t.gguf");
        std::fs::write(&path, builder.build()).unwrap();
        Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).map_err(|e| e.to_string())
    };
    assert!(build(3, &["a b"]).is_ok());
    assert!(build(2, &["a b"]).unwrap_err().contains("has 2 entries for 3 tokens"));
    assert!(build(3, &["ab"]).unwrap_err().contains("\"ab\" is not a pair"));
    assert!(build(3, &["a c"]).unwrap_err().contains("tokenizer.ggml.merges"));
}

#[test]
fn stop_ids_of_the_default_model() {
    let (tokenizer, template) = default_chat();
    let files = default_files();
    assert_eq!(template.turn_end(tokenizer).unwrap(), Some(TokenId(2)));
    assert_eq!(stop_ids(&files, tokenizer, Some(template)).unwrap(), [TokenId(2)]);
    assert_eq!(stop_ids(&files, tokenizer, None).unwrap(), [TokenId(2)]);
}

#[test]
fn stop_ids_come_from_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = tiny_gguf("gpt-2", folder.path(), |g| g.u32("tokenizer.ggml.eot_token_id", 100));
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template =
        own_template("{% for m in messages %}<s>{{ m.role }}:{{ m.content }}\n<turn>{% endfor %}");
    let got = stop_ids(&ModelFiles::Gguf(gguf), &tokenizer, Some(&template)).unwrap();
    assert_eq!(got, [100, 257, 258].map(TokenId));
    // A template without a token at the end of a turn adds none.
    let open = own_template("{% for m in messages %}{{ m.role }}: {{ m.content }}.\n{% endfor %}");
    assert_eq!(open.turn_end(&tokenizer).unwrap(), None);

    let write = |name: &str, json: &Value| {
        std::fs::write(folder.path().join(name), json.to_string()).unwrap();
    };
    let weights = vec![("w".to_owned(), safetensors_f32(&[1.0]))];
    safetensors::serialize_to_file(weights, None, &folder.path().join("model.safetensors"))
        .unwrap();
    let stops = |config: Value, generation: Value| {
        write("config.json", &config);
        write("generation_config.json", &generation);
        let files = ModelFiles::Safetensors(SafetensorsModel::open(folder.path()).unwrap());
        stop_ids(&files, &tokenizer, None).map_err(|e| e.to_string())
    };
    let got = stops(json!({"eos_token_id": 7}), json!({"eos_token_id": [9, 8]})).unwrap();
    assert_eq!(got, [7, 8, 9, 100, 257].map(TokenId));
    assert_eq!(stops(json!({"eos_token_id": null}), json!({})).unwrap(), [100, 257].map(TokenId));
    let error = stops(json!({"eos_token_id": "</s>"}), json!({})).unwrap_err();
    assert!(error.contains("config.json: eos_token_id"), "{error}");
}

fn safetensors_f32(numbers: &[f32]) -> safetensors::tensor::TensorView<'static> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let shape = vec![numbers.len()];
    safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes.leak()).unwrap()
}

#[test]
fn a_model_without_a_template_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let files = ModelFiles::Gguf(tiny_gguf("gpt-2", folder.path(), |g| g));
    assert!(ChatTemplate::of_model(&files).unwrap().is_none());
    let error = ChatTemplate::required(&files).unwrap_err().to_string();
    assert!(error.contains("tiny.gguf has no chat template"), "{error}");
    let origin = Path::new("tokenizer_config.json");
    let named = json!({"chat_template": [
        {"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]});
    let template = ChatTemplate::from_tokenizer_config(&named, origin).unwrap().unwrap();
    let tokenizer = &default_chat().0;
    assert_eq!(tokenizer.decode(&template.ids(tokenizer, &[], false).unwrap()), "D");
    let none = json!({"chat_template": []});
    assert!(ChatTemplate::from_tokenizer_config(&none, origin).is_err());
}

/// Other families, from the public data sets.
pub(crate) mod families {
    use std::sync::OnceLock;

    use super::*;

    /// (folder of the tokenizer, name of its pre-tokenizer in GGUF files)
    pub(crate) const FAMILIES: [(&str, &str); 3] =
        [("llama3_1", "llama-bpe"), ("qwen2_5", "qwen2"), ("qwen3", "qwen2")];

    pub(crate) fn shared(test: &str) -> Option<std::path::PathBuf> {
        let data = support::shared().map(|shared| shared.join("data"));
        let data =
            data.filter(|data| data.join("tokenizers").is_dir() && data.join("chat").is_dir());
        if data.is_none() {
            eprintln!("{test}: skipped, the public data (UNSAY_SHARED or ../shared) is not here");
        }
        data
    }

    /// A family's tokenizer and template, made once: building one takes a second.
    pub(crate) fn load(data: &Path, family: &str) -> &'static (Tokenizer, ChatTemplate) {
        static LOADED: [OnceLock<(Tokenizer, ChatTemplate)>; 3] = [const { OnceLock::new() }; 3];
        let at = FAMILIES.iter().position(|(name, _)| *name == family).unwrap();
        LOADED[at].get_or_init(|| {
            let folder = data.join("tokenizers").join(family);
            let config = gunzip(&folder.join("tokenizer_config.json.gz"));
            let config: Value = serde_json::from_slice(&config).unwrap();
            let json = gunzip(&folder.join("tokenizer.json.gz"));
            let tokenizer = Tokenizer::from_json(&json, Some(&config), &folder).unwrap();
            let template = ChatTemplate::from_tokenizer_config(&config, &folder).unwrap().unwrap();
            (tokenizer, template)
        })
    }

    #[test]
    fn texts_begin_with_bos_where_the_post_processor_says_so() {
        let Some(data) = shared("texts_begin_with_bos_where_the_post_processor_says_so") else {
            return;
        };
        for (family, _) in FAMILIES {
            assert_eq!(load(&data, family).0.adds_bos(), family == "llama3_1");
        }
    }

    pub(crate) fn as_gguf(json: &Value, pre: &str) -> GgufBuilder {
        let mut tokens: Vec<(u64, &str, i32)> = Vec::new();
        for (token, id) in json["model"]["vocab"].as_object().unwrap() {
            tokens.push((id.as_u64().unwrap(), token, 1));
        }
        for added in json["added_tokens"].as_array().unwrap() {
            let kind = if added["special"] == true { 3 } else { 4 };
            tokens.push((added["id"].as_u64().unwrap(), added["content"].as_str().unwrap(), kind));
        }
        // Added tokens come last and take the place of what the vocabulary has under the same id.
        tokens.sort_by_key(|token| token.0);
        tokens.reverse();
        tokens.sort_by_key(|token| (token.0, std::cmp::Reverse(token.2)));
        tokens.dedup_by_key(|token| token.0);
        assert!(tokens.iter().enumerate().all(|(at, token)| token.0 == at as u64));
        let merges: Vec<String> = json["model"]["merges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|merge| match merge {
                Value::String(pair) => pair.clone(),
                pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
            })
            .collect();
        GgufBuilder::default()
            .string("tokenizer.ggml.model", "gpt2")
            .string("tokenizer.ggml.pre", pre)
            .strings("tokenizer.ggml.tokens", tokens.iter().map(|token| token.1))
            .i32s("tokenizer.ggml.token_type", tokens.iter().map(|token| token.2))
            .strings("tokenizer.ggml.merges", merges.iter().map(String::as_str))
    }

    #[test]
    fn dialogues_are_those_of_transformers() {
        let Some(data) = shared("dialogues_are_those_of_transformers") else { return };
        for (family, _) in FAMILIES {
            let (tokenizer, template) = load(&data, family);
            let cases = std::fs::read(data.join("chat").join(format!("{family}.jsonl"))).unwrap();
            let cases = json_lines(&cases);
            let mut equal = 0;
            for case in &cases {
                let template = match case.get("enable_thinking") {
                    Some(on) => {
                        template.clone().with_variable("enable_thinking", on.as_bool().unwrap())
                    }
                    None => template.clone(),
                };
                let messages: Vec<Message<'_>> = case["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|message| {
                        let role = serde_json::from_value(message["role"].clone()).unwrap();
                        Message::text(role, message["content"].as_str().unwrap())
                    })
                    .collect();
                let prompt = case["add_generation_prompt"].as_bool().unwrap();
                let got = template.ids(tokenizer, &messages, prompt).unwrap();
                let theirs = ids(&case["ids"]);
                // They parse special tokens in content; here those are text.
                let special = |message: &Value| {
                    let content = message["content"].as_str().unwrap();
                    tokenizer.encode_template(content).unwrap()
                        != tokenizer.encode(content).unwrap()
                };
                if case["messages"].as_array().unwrap().iter().any(special) {
                    assert_ne!(got, theirs, "{family}: {case}");
                } else {
                    assert_eq!(got, theirs, "{family}: {case}");
                    equal += 1;
                }
                assert_eq!(tokenizer.decode(&got), case["text"].as_str().unwrap());
            }
            assert!(equal >= 22, "{family}: {equal} of {} dialogues", cases.len());
        }
    }

    #[test]
    fn turns_end_with_the_token_of_the_family() {
        let Some(data) = shared("turns_end_with_the_token_of_the_family") else { return };
        for (family, end) in [("llama3_1", 128_009), ("qwen2_5", 151_645), ("qwen3", 151_645)] {
            let (tokenizer, template) = load(&data, family);
            assert_eq!(template.turn_end(tokenizer).unwrap(), Some(TokenId(end)), "{family}");
        }
    }

    /// Turn by turn: what is held begins what is sent next, and that is the rendering of the whole
    /// dialogue, but for what Qwen3 leaves out of turns that are past.
    #[test]
    fn a_turn_is_added_behind_what_is_held() {
        let Some(data) = shared("a_turn_is_added_behind_what_is_held") else { return };
        let off = load(&data, "qwen3").1.clone().with_variable("enable_thinking", false);
        let plain =
            [("Two cats?", "Eight legs."), ("And a bird?", "Ten."), ("A snake?", "Still 10")];
        let thought = "<think>\nA bird has two.\n</think>\n\nTen.";
        let thinking = [plain[0], ("And a bird?", thought), plain[2]];
        let (default, template) = default_chat();
        let mut cases = vec![(default, template, plain, "")];
        for (family, _) in FAMILIES {
            let (tokenizer, template) = load(&data, family);
            cases.push((tokenizer, template, plain, ""));
        }
        let qwen3 = load(&data, "qwen3");
        cases.push((&qwen3.0, &qwen3.1, thinking, ""));
        cases.push((&qwen3.0, &off, plain, "<think>\n\n</think>\n\n"));
        for (tokenizer, template, turns, block) in cases {
            let mut said: Vec<(Vec<TokenId>, Vec<TokenId>)> = Vec::new();
            let mut held = Vec::new();
            for turn in 0..turns.len() {
                let mut messages = vec![Message::text(Role::System, "Count.")];
                let mut whole = messages.clone();
                for (index, (question, reply)) in turns[..=turn].iter().enumerate() {
                    messages.push(Message::text(Role::User, question));
                    whole.push(Message::text(Role::User, question));
                    if let Some((ids, lead)) = said.get(index) {
                        messages.push(Message::ids(Role::Assistant, ids).behind(lead));
                        whole.push(Message::text(Role::Assistant, reply));
                    }
                }
                let sent = template.ids(tokenizer, &messages, true).unwrap();
                assert!(sent.starts_with(&held), "{:?}", tokenizer.decode(&sent));
                // The past with the blocks that stood there, as if the template had kept them.
                let rendered = template.ids(tokenizer, &whole, true).unwrap();
                let mut text = tokenizer.decode(&rendered);
                for (_, reply) in &turns[..turn] {
                    let said = reply.split("</think>\n\n").last().unwrap();
                    text = text.replace(
                        &format!("assistant\n{said}"),
                        &format!("assistant\n{block}{reply}"),
                    );
                }
                assert_eq!(tokenizer.decode(&sent), text);
                assert_eq!(sent, tokenizer.encode_template(&text).unwrap());
                let lead = template.lead(tokenizer, &messages).unwrap();
                assert!(sent.ends_with(&lead) && !lead.is_empty());
                let reply = tokenizer.encode_template(turns[turn].1).unwrap();
                held = [&sent[..], &reply].concat();
                said.push((reply, lead));
            }
        }
    }
}
