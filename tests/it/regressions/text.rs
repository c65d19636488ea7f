//! Tokenizers that were refused or gave other ids. Each names its row of the list of faults and the
//! public issue where it was reported.

use serde_json::json;
use unsay::store::Gguf;
use unsay::text::{TokenId, Tokenizer};

use crate::support::{self, gunzip};
use crate::text::check_ids;
use crate::text::families::{FAMILIES, as_gguf, load, shared};

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
