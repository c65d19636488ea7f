//! Vocabularies of pieces, whose segmentations are worked out by hand, by a slow search for the best
//! pair, and for tokenizer.json by the `tokenizers` crate.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use unsay::store::Gguf;
use unsay::text::{ChatTemplate, Detokenizer, Message, Role, TokenId, Tokenizer};

use crate::support::GgufBuilder;

const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// The first ids: <unk>, <s>, </s>, then the bytes.
const FIRST: u32 = 3 + 256;

/// Pieces with their scores, from id 259 on.
const PIECES: &[(&str, f32)] = &[
    ("▁", -9.0),
    ("h", -11.0),
    ("e", -12.0),
    ("l", -13.0),
    ("o", -14.0),
    ("ll", -1.0),
    ("he", -2.0),
    ("lo", -3.0),
    ("▁he", -4.0),
    ("llo", -5.0),
    ("▁hello", -6.0),
];

const SPACE: u32 = FIRST;
const H: u32 = FIRST + 1;
const LL: u32 = FIRST + 5;
const HE: u32 = FIRST + 6;
const LO: u32 = FIRST + 7;
const LLO: u32 = FIRST + 9;
const HELLO: u32 = FIRST + 10;

fn byte(b: u8) -> u32 {
    3 + u32::from(b)
}

/// A vocabulary as GGUF files have it, with more tokens behind it.
pub fn gguf(pieces: &[(&str, f32)], more: &[(&str, i32)]) -> GgufBuilder {
    let mut tokens: Vec<(String, f32, i32)> = vec![
        ("<unk>".to_owned(), 0.0, UNKNOWN),
        ("<s>".to_owned(), 0.0, CONTROL),
        ("</s>".to_owned(), 0.0, CONTROL),
    ];
    tokens.extend((0..=255).map(|b| (format!("<0x{b:02X}>"), 0.0, BYTE)));
    tokens.extend(pieces.iter().map(|&(piece, score)| (piece.to_owned(), score, 1)));
    tokens.extend(more.iter().map(|&(token, kind)| (token.to_owned(), -0.5, kind)));
    GgufBuilder::default()
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", tokens.iter().map(|token| token.0.as_str()))
        .f32s("tokenizer.ggml.scores", tokens.iter().map(|token| token.1))
        .i32s("tokenizer.ggml.token_type", tokens.iter().map(|token| token.2))
}

pub fn read(builder: &GgufBuilder) -> Result<Tokenizer, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pieces.gguf");
    std::fs::write(&path, builder.build()).unwrap();
    Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).map_err(|error| error.to_string())
}

fn numbers(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

fn encode(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    numbers(&tokenizer.encode(text).unwrap())
}

#[test]
fn the_best_scores_are_joined_first() {
    let tokenizer = read(&gguf(PIECES, &[])).unwrap();
    // ▁ h e l l o: ll (-1), he (-2), ▁he (-4), llo (-5), ▁hello (-6).
    assert_eq!(encode(&tokenizer, "hello"), [HELLO]);
    // The second lo (-3) is joined before the first l and lo come to llo.
    assert_eq!(encode(&tokenizer, "hellolo"), [HELLO, LO]);
    // Of equal scores the left pair: ▁ ll l o, then lo.
    assert_eq!(encode(&tokenizer, "lllo"), [SPACE, LL, LO]);
    assert_eq!(encode(&tokenizer, "llll"), [SPACE, LL, LL]);
    // A longer piece that no pair leads to is not found: o and l are never joined.
    assert_eq!(encode(&tokenizer, "ol"), [SPACE, FIRST + 4, FIRST + 3]);
    assert_eq!(encode(&tokenizer, " hello"), [SPACE, HELLO]);
    assert_eq!(encode(&tokenizer, "hello hello"), [HELLO, HELLO]);
    assert_eq!(encode(&tokenizer, ""), [0; 0]);
    // What is no piece becomes its bytes.
    assert_eq!(encode(&tokenizer, "hé"), [SPACE, H, byte(0xc3), byte(0xa9)]);
    assert_eq!(encode(&tokenizer, "\n"), [SPACE, byte(b'\n')]);
}

#[test]
fn special_tokens_in_content_are_text() {
    let tokenizer = read(&gguf(PIECES, &[])).unwrap();
    let spelled = [SPACE, byte(b'<'), byte(b's'), byte(b'>'), HE, LLO];
    assert_eq!(encode(&tokenizer, "<s>hello"), spelled);
    // Where a template writes it, it is special, and the text behind it begins with a space.
    assert_eq!(numbers(&tokenizer.encode_template("<s>hello").unwrap()), [1, HELLO]);
    // Nor can a control token or a byte be joined out of pieces.
    let pieces = [PIECES, &[("<", -1.0), ("s>", -1.0), ("s", -1.0), (">", -1.0), ("<s", -1.0)]];
    let tokenizer = read(&gguf(&pieces.concat(), &[])).unwrap();
    assert!(!encode(&tokenizer, "<s> <0x41>").contains(&1));
    assert!(!encode(&tokenizer, "<0x41>").contains(&byte(0x41)));
}

#[test]
fn a_space_is_put_before_text_where_the_vocabulary_says_so() {
    let tokenizer = read(&gguf(PIECES, &[])).unwrap();
    assert_eq!(numbers(&tokenizer.encode_behind("hello").unwrap()), [HE, LLO]);
    let without = gguf(PIECES, &[]).bool("tokenizer.ggml.add_space_prefix", false);
    let without = read(&without).unwrap();
    assert_eq!(encode(&without, "hello"), [HE, LLO]);
    assert_eq!(encode(&without, " hello"), [HELLO]);
    // Text behind generated tokens goes on from them; text behind a special token does not.
    let template = ChatTemplate::new(
        "{% for m in messages %}{{ m.content }}lo{% endfor %}</s>lo",
        Path::new("own.jinja"),
    );
    let messages = [Message::ids(Role::Assistant, &[TokenId(HELLO)])];
    let ids = template.unwrap().ids(&tokenizer, &messages, false).unwrap();
    assert_eq!(numbers(&ids), [1, HELLO, LO, 2, SPACE, LO]);
}

#[test]
fn tokens_stand_for_text_and_bytes() {
    let more = [("▁▁", USER_DEFINED), ("<tag>", USER_DEFINED)];
    let tokenizer = read(&gguf(PIECES, &more)).unwrap();
    let (spaces, tag) = (FIRST + PIECES.len() as u32, FIRST + PIECES.len() as u32 + 1);
    assert_eq!(tokenizer.token_bytes(TokenId(HELLO)), Some(&b" hello"[..]));
    assert_eq!(tokenizer.token_bytes(TokenId(byte(0xc3))), Some(&[0xc3][..]));
    assert_eq!(tokenizer.token_bytes(TokenId(1)), Some(&b"<s>"[..]));
    assert_eq!(tokenizer.token_bytes(TokenId(spaces)), Some(&b"  "[..]));
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(TokenId(1)), Some(TokenId(2))));
    assert!(tokenizer.adds_bos());
    assert_eq!(numbers(tokenizer.special_ids()), [0, 1, 2]);
    assert_eq!(tokenizer.token_id(" hello"), Some(TokenId(HELLO)));
    assert_eq!(tokenizer.token_id("</s>"), Some(TokenId(2)));
    // A user-defined token is matched as a whole in content.
    let ids = encode(&tokenizer, "hello<tag>lo");
    assert_eq!(ids, [HELLO, tag, SPACE, LO]);
    assert_eq!(numbers(&tokenizer.encode_behind("  lo").unwrap()), [spaces, SPACE, LO]);
    // A character whose bytes are single tokens comes whole.
    let mut stream = Detokenizer::new();
    let ids = tokenizer.encode_behind("h€").unwrap();
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(&tokenizer, id)).collect();
    assert_eq!(pieces, ["h", "", "", "€"]);
}

/// As SentencePiece has them: a piece that is not used only leads to longer ones.
#[test]
fn unused_pieces_are_taken_apart() {
    let pieces = [("▁", -9.0), ("e", -9.0), ("l", -9.0), ("ell", -2.0)];
    let tokenizer = read(&gguf(&pieces, &[("el", UNUSED), ("elle", UNUSED)])).unwrap();
    let (e, l, ell) = (FIRST + 1, FIRST + 2, FIRST + 3);
    assert_eq!(numbers(&tokenizer.encode_behind("ell").unwrap()), [ell]);
    assert_eq!(numbers(&tokenizer.encode_behind("el").unwrap()), [e, l]);
    assert_eq!(numbers(&tokenizer.encode_behind("elle").unwrap()), [ell, e]);
}

#[test]
fn vocabularies_without_bytes_have_an_unknown_token() {
    let without = |unknown: i32| {
        GgufBuilder::default()
            .string("tokenizer.ggml.model", "llama")
            .strings("tokenizer.ggml.tokens", ["<unk>", "a"])
            .f32s("tokenizer.ggml.scores", [0.0, -1.0])
            .i32s("tokenizer.ggml.token_type", [unknown, 1])
    };
    let tokenizer = read(&without(UNKNOWN)).unwrap();
    // Several in a row are one; the space before the text is one of them.
    assert_eq!(encode(&tokenizer, "xyaz"), [0, 1, 0]);
    let error = read(&without(CONTROL)).unwrap().encode("a").unwrap_err().to_string();
    assert!(error.contains("'▁' is no piece, and there are no bytes"), "{error}");
}

#[test]
fn damaged_vocabularies_are_errors() {
    let with = |scores: &[f32], kinds: &[i32], token: &str| {
        read(
            &GgufBuilder::default()
                .string("tokenizer.ggml.model", "llama")
                .strings("tokenizer.ggml.tokens", ["a", token])
                .f32s("tokenizer.ggml.scores", scores.iter().copied())
                .i32s("tokenizer.ggml.token_type", kinds.iter().copied()),
        )
    };
    assert!(with(&[0.0, 0.0], &[1, 6], "<0x0a>").is_ok());
    let error = |result: Result<Tokenizer, String>| result.unwrap_err();
    assert!(error(with(&[0.0], &[1, 1], "b")).contains("scores: has 1 entries for 2 tokens"));
    assert!(error(with(&[0.0, 0.0], &[1], "b")).contains("token_type: has 1 entries"));
    assert!(error(with(&[0.0, f32::NAN], &[1, 1], "b")).contains("entry 1 is not a number"));
    assert!(error(with(&[0.0, 0.0], &[1, 6], "<0xXY>")).contains("\"<0xXY>\" is of the kind"));
    let none = GgufBuilder::default()
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", ["a"])
        .i32s("tokenizer.ggml.token_type", [1]);
    assert!(error(read(&none)).contains("tokenizer.ggml.scores"));
}

/// The best pair looked for again after each join.
fn join_slowly(pieces: &[(&str, f32)], text: &str) -> Vec<u32> {
    let find = |text: &str| pieces.iter().position(|piece| piece.0 == text);
    let mut parts: Vec<String> = text.replace(' ', "▁").chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for at in 1..parts.len() {
            let joined = format!("{}{}", parts[at - 1], parts[at]);
            if let Some(piece) = find(&joined)
                && best.is_none_or(|(score, _)| pieces[piece].1 > score)
            {
                best = Some((pieces[piece].1, at));
            }
        }
        let Some((_, at)) = best else { break };
        let right = parts.remove(at);
        parts[at - 1] += &right;
    }
    let ids = |part: &String| match find(part) {
        Some(piece) => vec![FIRST + piece as u32],
        None => part.bytes().map(byte).collect(),
    };
    parts.iter().flat_map(ids).collect()
}

fn pieces() -> impl Strategy<Value = Vec<(String, f32)>> {
    let score = (-6i8..0).prop_map(f32::from);
    prop::collection::btree_map("[ab▁]{1,5}", score, 1..20).prop_map(Vec::from_iter)
}

/// A tokenizer.json over pieces, each merge the first way to split its piece in two.
fn tokenizer_json(pieces: &[(String, f32)], spaces: &Value) -> Value {
    let mut vocabulary = serde_json::Map::new();
    let mut add = |token: &str| {
        let id = vocabulary.len();
        vocabulary.entry(token).or_insert(json!(id));
    };
    ["<unk>", "<s>"].iter().for_each(|token| add(token));
    (0..=255).for_each(|b| add(&format!("<0x{b:02X}>")));
    ["▁", "a", "b"].iter().for_each(|token| add(token));
    pieces.iter().for_each(|(piece, _)| add(piece));
    let mut merges = Vec::new();
    let mut sorted = pieces.to_vec();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (piece, _) in &sorted {
        for (cut, _) in piece.char_indices().skip(1) {
            let (one, other) = piece.split_at(cut);
            if vocabulary.contains_key(one) && vocabulary.contains_key(other) {
                merges.push(json!([one, other]));
            }
        }
    }
    let special = json!({"id": 1, "content": "<s>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true});
    json!({"version": "1.0", "added_tokens": [special],
        "normalizer": spaces["normalizer"], "pre_tokenizer": spaces["pre_tokenizer"],
        "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true,
            "byte_fallback": true, "ignore_merges": false, "vocab": vocabulary, "merges": merges}})
}

/// The ways in which real files write spaces: Llama 2 and Mistral, their later forms, and none.
fn ways_of_spaces() -> Vec<Value> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    let metaspace = |scheme: &str, split: bool| {
        json!({"normalizer": null, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁",
            "prepend_scheme": scheme, "split": split}})
    };
    let sequence = |steps: Value| json!({"type": "Sequence", "normalizers": steps});
    vec![
        json!({"normalizer": sequence(json!([prepend, replace])), "pre_tokenizer": null}),
        json!({"normalizer": replace, "pre_tokenizer": null}),
        metaspace("always", false),
        metaspace("first", false),
        metaspace("never", true),
        metaspace("always", true),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn joining_is_the_search_for_the_best_pair(
        pieces in pieces(), text in "[abc é]{0,24}",
    ) {
        let pieces: Vec<(&str, f32)> = pieces.iter().map(|(p, s)| (p.as_str(), *s)).collect();
        let tokenizer = read(&gguf(&pieces, &[])).unwrap();
        let got = numbers(&tokenizer.encode_behind(&text).unwrap());
        prop_assert_eq!(got, join_slowly(&pieces, &text));
    }

    /// A tokenizer.json over pieces gives the ids of the library that the format is of, as content and
    /// with special tokens.
    #[test]
    fn pieces_of_tokenizer_json_are_those_of_its_library(
        pieces in pieces(), text in "([abc é]|<s>){0,16}", way in 0usize..6,
    ) {
        let json = tokenizer_json(&pieces, &ways_of_spaces()[way]).to_string();
        let ours = Tokenizer::from_json(json.as_bytes(), None, Path::new("t.json")).unwrap();
        let mut theirs = tokenizers::Tokenizer::from_bytes(json.as_bytes()).unwrap();
        let special = theirs.encode_fast(text.as_str(), false).unwrap().get_ids().to_vec();
        prop_assert_eq!(numbers(&ours.encode_template(&text).unwrap()), special, "special");
        theirs.set_encode_special_tokens(true);
        let content = theirs.encode_fast(text.as_str(), false).unwrap().get_ids().to_vec();
        prop_assert_eq!(encode(&ours, &text), content, "content");
    }
}

#[test]
fn what_pieces_of_tokenizer_json_cannot_do_is_refused_by_name() {
    let refused = |path: &str, value: Value| {
        let mut json = tokenizer_json(&[("ab".to_owned(), -1.0)], &ways_of_spaces()[0]);
        *json.pointer_mut(path).unwrap() = value;
        let bytes = json.to_string();
        Tokenizer::from_json(bytes.as_bytes(), None, Path::new("t.json")).unwrap_err().to_string()
    };
    for (path, value, named) in [
        ("/normalizer", json!({"type": "NFKC"}), "normalizer is"),
        ("/normalizer", Value::Null, "pre_tokenizer is"),
        ("/pre_tokenizer", json!({"type": "Whitespace"}), "pre_tokenizer is"),
        ("/model/ignore_merges", json!(true), "model.ignore_merges is"),
        ("/model/dropout", json!(0.1), "model.dropout is"),
        ("/model/vocab/ab", json!(4_000_000_000u32), "far beyond the 262 tokens"),
    ] {
        let error = refused(path, value);
        assert!(error.starts_with("t.json: ") && error.contains(named), "{path}: {error}");
    }
}
