//! Vocabularies of pieces out of files: GGUF of kind `llama`, which has scores and needs no merges, and
//! tokenizer.json with merges over pieces. What a file asks for and is not done here is refused by name.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::Value;

use super::TokenId;
use super::gguf::{damaged, ends, token_type};
use super::pieces::{Joining, Pieces, Prefix, PrefixWhen, Ranks, byte_of, piece_text};
use super::specials::AddedToken;
use super::tokenizer::{Ends, Tokenizer, TokenizerError};
use crate::store::Gguf;

/// A vocabulary that is being read.
#[derive(Default)]
struct Reading {
    ids: HashMap<String, TokenId>,
    unused: HashSet<TokenId>,
    bytes: Vec<Option<TokenId>>,
    unknown: Option<TokenId>,
    added: Vec<AddedToken>,
    /// What each token stands for.
    texts: Vec<(TokenId, Vec<u8>)>,
}

impl Reading {
    fn new() -> Self {
        Self { bytes: vec![None; 256], ..Self::default() }
    }

    fn normal(&mut self, piece: &str, id: TokenId) {
        self.ids.insert(piece.to_owned(), id);
        self.texts.push((id, piece_text(piece).into_bytes()));
    }

    fn byte(&mut self, byte: u8, id: TokenId) {
        self.bytes[usize::from(byte)] = Some(id);
        self.texts.push((id, vec![byte]));
    }

    fn whole(&mut self, token: AddedToken) {
        self.texts.push((token.id, token.text.clone().into_bytes()));
        self.added.push(token);
    }

    fn finish(self, joining: Joining, prefix: Prefix, split_words: bool, ends: Ends) -> Tokenizer {
        let Self { ids, unused, bytes, unknown, added, texts } = self;
        let pieces = Pieces { ids, joining, unused, bytes, unknown, prefix, split_words };
        Tokenizer::of_pieces(pieces, texts, added, ends)
    }
}

/// A token that is matched as a whole as it stands.
fn whole(text: String, id: TokenId, special: bool) -> AddedToken {
    AddedToken { text, id, special, lstrip: false, rstrip: false, single_word: false }
}

/// The tokenizer of a GGUF file whose `tokenizer.ggml.model` is `llama`: joined by scores. Merges are
/// neither needed nor looked at.
pub(super) fn from_gguf(gguf: &Gguf) -> Result<Tokenizer, TokenizerError> {
    let metadata = gguf.metadata();
    let wrong = |key: &str, why: String| damaged(metadata, key, &*Box::from(why));
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    let (scores_key, kinds_key) = ("tokenizer.ggml.scores", "tokenizer.ggml.token_type");
    let (scores, kinds) = (metadata.f32s(scores_key)?, metadata.i32s(kinds_key)?);
    for (key, len) in [(scores_key, scores.len()), (kinds_key, kinds.len())] {
        if len != tokens.len() {
            return Err(wrong(key, format!("has {len} entries for {} tokens", tokens.len())));
        }
    }
    if let Some(at) = scores.iter().position(|score| score.is_nan()) {
        return Err(wrong(scores_key, format!("entry {at} is not a number")));
    }
    let mut reading = Reading::new();
    for ((id, &token), kind) in (0..).map(TokenId).zip(&tokens).zip(&kinds) {
        match *kind {
            token_type::CONTROL => reading.whole(whole(token.to_owned(), id, true)),
            token_type::UNKNOWN => {
                reading.unknown = reading.unknown.or(Some(id));
                reading.whole(whole(token.to_owned(), id, true));
            }
            token_type::USER_DEFINED => reading.whole(whole(piece_text(token), id, false)),
            token_type::BYTE => {
                let byte = byte_of(token).ok_or_else(|| {
                    let why = format!("{token:?} is of the kind of bytes and is none (`<0x0A>`)");
                    wrong("tokenizer.ggml.tokens", why)
                })?;
                reading.byte(byte, id);
            }
            kind => {
                if kind == token_type::UNUSED {
                    reading.unused.insert(id);
                }
                reading.normal(token, id);
            }
        }
    }
    let key = "tokenizer.ggml.add_space_prefix";
    let adds = if metadata.contains(key) { metadata.bool(key)? } else { true };
    let when = if adds { PrefixWhen::Each } else { PrefixWhen::Never };
    let mut ends = ends(metadata, tokens.len(), true)?;
    // What this kind of vocabulary has where the file does not say.
    let control = |id: usize| kinds.get(id) == Some(&token_type::CONTROL);
    ends.bos = ends.bos.or_else(|| control(1).then_some(TokenId(1)));
    ends.eos = ends.eos.or_else(|| control(2).then_some(TokenId(2)));
    let prefix = Prefix { when, unless_there: false };
    Ok(reading.finish(Joining::Scores(scores), prefix, false, ends))
}

/// The tokenizer of a tokenizer.json whose model is a BPE over pieces; `origin` names it in errors.
pub(super) fn from_json(
    json: &Value,
    ends: Ends,
    origin: &Path,
) -> Result<Tokenizer, TokenizerError> {
    let wrong = |field: &str, why: String| TokenizerError::Damaged {
        path: origin.to_owned(),
        field: field.to_owned(),
        why,
    };
    let model = &json["model"];
    refuse_options(model, origin)?;
    let (prefix, split_words) = spaces(json, origin)?;
    let vocabulary = model["vocab"].as_object();
    let vocabulary = vocabulary.ok_or_else(|| wrong("model.vocab", "is missing".to_owned()))?;
    let id_of = |value: &Value| Some(TokenId(u32::try_from(value.as_u64()?).ok()?));
    let mut reading = Reading::new();
    let mut added: HashSet<TokenId> = HashSet::new();
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let (id, text) = (id_of(&token["id"]), token["content"].as_str());
        let (Some(id), Some(text)) = (id, text) else {
            return Err(wrong("added_tokens", format!("{token} has no id or no content")));
        };
        added.insert(id);
        let flag = |name: &str| token[name].as_bool().unwrap_or(false);
        reading.whole(AddedToken {
            lstrip: flag("lstrip"),
            rstrip: flag("rstrip"),
            single_word: flag("single_word"),
            ..whole(text.to_owned(), id, flag("special"))
        });
    }
    let spells = model["byte_fallback"].as_bool().unwrap_or(false);
    let mut all: HashMap<&str, TokenId> = HashMap::new();
    for (piece, id) in vocabulary {
        let id = id_of(id);
        let id = id.ok_or_else(|| wrong("model.vocab", format!("{piece:?} has no id")))?;
        all.insert(piece, id);
        if added.contains(&id) {
            continue;
        }
        match byte_of(piece).filter(|_| spells) {
            Some(byte) => reading.byte(byte, id),
            None => reading.normal(piece, id),
        }
    }
    reading.unknown = model["unk_token"].as_str().and_then(|token| all.get(token).copied());
    let ranks = ranks(&model["merges"], &all).map_err(|why| wrong("model.merges", why))?;
    Ok(reading.finish(Joining::Ranks(ranks), prefix, split_words, ends))
}

/// Options of a BPE that vocabularies of pieces do not have.
fn refuse_options(model: &Value, origin: &Path) -> Result<(), TokenizerError> {
    for (field, path) in [
        ("dropout", "model.dropout"),
        ("continuing_subword_prefix", "model.continuing_subword_prefix"),
        ("end_of_word_suffix", "model.end_of_word_suffix"),
        ("ignore_merges", "model.ignore_merges"),
    ] {
        let value = &model[field];
        let set = match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Number(number) => number.as_f64() != Some(0.0),
            _ => true,
        };
        if set {
            return Err(TokenizerError::Unsupported {
                path: origin.to_owned(),
                field: path,
                found: value.to_string(),
                supported: "none",
            });
        }
    }
    Ok(())
}

/// How spaces are written: by a normalizer that puts `▁` in their place and before the text, or by the
/// pre-tokenizer Metaspace. Answers with whether words are joined apart, too.
fn spaces(json: &Value, origin: &Path) -> Result<(Prefix, bool), TokenizerError> {
    let refused = |field, value: &Value, supported| {
        Err(TokenizerError::Unsupported {
            path: origin.to_owned(),
            field,
            found: value.to_string(),
            supported,
        })
    };
    let mut prefix = Prefix { when: PrefixWhen::Never, unless_there: false };
    let mut written = false;
    let normalizer = &json["normalizer"];
    let steps = match normalizer["type"].as_str() {
        _ if normalizer.is_null() => &[][..],
        Some("Sequence") => normalizer["normalizers"].as_array().map_or(&[][..], Vec::as_slice),
        _ => std::slice::from_ref(normalizer),
    };
    for step in steps {
        match step["type"].as_str() {
            Some("Prepend") if step["prepend"] == "▁" && !written => {
                prefix.when = PrefixWhen::Each
            }
            Some("Replace") if step["pattern"]["String"] == " " && step["content"] == "▁" => {
                written = true;
            }
            _ => return refused("normalizer", step, "Prepend and Replace of spaces by `▁`"),
        }
    }
    let cut = &json["pre_tokenizer"];
    if cut.is_null() && written {
        return Ok((prefix, false));
    }
    let only = "ByteLevel; or Metaspace with `▁`, or none where the normalizer writes `▁`";
    if cut["type"] != "Metaspace" || cut["replacement"] != "▁" || !steps.is_empty() {
        return refused("pre_tokenizer", cut, only);
    }
    let when = match (cut["prepend_scheme"].as_str(), cut["add_prefix_space"].as_bool()) {
        (Some("always"), _) | (None, None | Some(true)) => PrefixWhen::Each,
        (Some("first"), _) => PrefixWhen::First,
        (Some("never"), _) | (None, Some(false)) => PrefixWhen::Never,
        _ => return refused("pre_tokenizer", cut, only),
    };
    Ok((Prefix { when, unless_there: true }, cut["split"].as_bool().unwrap_or(true)))
}

/// The pairs of `merges`, each a text with a space in it or a list of two.
fn ranks(merges: &Value, all: &HashMap<&str, TokenId>) -> Result<Ranks, String> {
    let merges = merges.as_array().ok_or("is missing")?;
    let mut ranks = Ranks::with_capacity(merges.len());
    for (rank, merge) in (0..).zip(merges) {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(two) => match two.as_slice() {
                [one, other] => one.as_str().zip(other.as_str()),
                _ => None,
            },
            _ => None,
        };
        let (one, other) = pair.ok_or_else(|| format!("{merge} is not a pair"))?;
        let id = |piece: &str| {
            all.get(piece).copied().ok_or_else(|| format!("{piece:?} is not in the vocabulary"))
        };
        let joined = id(&format!("{one}{other}"))?;
        ranks.insert((id(one)?, id(other)?), (rank, joined));
    }
    Ok(ranks)
}
