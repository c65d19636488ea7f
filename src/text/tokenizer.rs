//! Tokenizers, from GGUF metadata and from tokenizer.json: byte-level BPE over the `tokenizers` crate,
//! and pieces with scores or merges (`pieces`).
//!
//! Text is encoded in one of two ways, both through `&self`: as content, where a special token that
//! is written out stays text, and as template text, where it is parsed. The crate has a switch for
//! that inside its shared state; here it stays at "content", and special tokens are cut out before.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::models::ModelWrapper;
use tokenizers::{DecoderWrapper, PreTokenizerWrapper};

use super::TokenId;
use super::piece_files;
use super::pieces::{Pieces, Place, written_piece};
use super::specials::{AddedToken, AddedTokens, Span};
use crate::store::{GgufError, ModelFiles, SafetensorsModel, StoreError, read_json};

/// Why a tokenizer could not be made or could not encode.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(
        "{}: {field} is {found:?}, which is not supported; supported: {supported}",
        path.display()
    )]
    Unsupported { path: PathBuf, field: &'static str, found: String, supported: &'static str },
    #[error("{}: {field}: {why}; convert or fetch the model again", path.display())]
    Damaged { path: PathBuf, field: String, why: String },
    #[error("the text could not be tokenized: {why}")]
    Encode { why: String },
}

/// A model's tokenizer: text to ids and back.
#[derive(Clone)]
pub struct Tokenizer {
    cutter: Cutter,
    added: AddedTokens,
    bytes: TokenBytes,
    /// Rising.
    special_ids: Vec<TokenId>,
    pub(super) ends: Ends,
}

/// What makes tokens of text that no special token stands in.
#[derive(Clone)]
enum Cutter {
    ByteLevel(Box<tokenizers::Tokenizer>),
    Pieces(Box<Pieces>),
}

/// The part of a tokenizer.json that is looked at before the library reads it.
#[derive(serde::Deserialize)]
struct Decoder {
    #[serde(default, rename = "decoder")]
    _decoder: Value,
}

/// The tokens that begin and end texts and turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) bos: Option<TokenId>,
    pub(super) eos: Option<TokenId>,
    pub(super) eot: Option<TokenId>,
    pub(super) adds_bos: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of a model: out of its GGUF file, or beside its weights.
    pub fn of_model(files: &ModelFiles) -> Result<Self, TokenizerError> {
        match files {
            ModelFiles::Gguf(gguf) => Self::from_gguf(gguf),
            ModelFiles::Safetensors(model) => Self::from_model_folder(model),
        }
    }

    /// The tokenizer of a model folder: tokenizer.json, with what tokenizer_config.json says of its
    /// first and last tokens.
    fn from_model_folder(model: &SafetensorsModel) -> Result<Self, TokenizerError> {
        Self::from_file(&model.folder().join("tokenizer.json"))
    }

    /// Reads a tokenizer.json, and the tokenizer_config.json beside it if there is one.
    pub fn from_file(path: &Path) -> Result<Self, TokenizerError> {
        let json = std::fs::read(path).map_err(|source| StoreError::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        })?;
        let config = path.with_file_name("tokenizer_config.json");
        let config = if config.is_file() { Some(read_json(&config)?) } else { None };
        Self::from_json(&json, config.as_ref(), path)
    }

    /// Makes a tokenizer of the content of a tokenizer.json and of a tokenizer_config.json;
    /// `origin` names it in errors.
    pub fn from_json(
        tokenizer: &[u8],
        config: Option<&Value>,
        origin: &Path,
    ) -> Result<Self, TokenizerError> {
        let damaged = |field: &str, why: String| TokenizerError::Damaged {
            path: origin.to_owned(),
            field: field.to_owned(),
            why,
        };
        let whole = "the file as a tokenizer";
        // The library ends in a panic where its decoder is no JSON value (1e999, half a surrogate).
        serde_json::from_slice::<Decoder>(tokenizer).map_err(|e| damaged(whole, e.to_string()))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(tokenizer)
            .map_err(|e| damaged(whole, e.to_string()))?;
        let byte_level = is_byte_level(&inner, origin)?;
        check_ids(&inner).map_err(|why| damaged("model.vocab", why))?;
        inner.with_truncation(None).map_err(|e| damaged("truncation", e.to_string()))?;
        inner.with_padding(None);
        let mut ends = Ends::default();
        for (field, end) in [("bos_token", &mut ends.bos), ("eos_token", &mut ends.eos)] {
            let named = config.and_then(|config| config.get(field)).filter(|v| !v.is_null());
            let Some(named) = named else { continue };
            let text = named.as_str().or_else(|| named.get("content")?.as_str());
            let id = text.and_then(|text| inner.token_to_id(text));
            let id =
                id.ok_or_else(|| damaged(field, format!("{named} is not in the vocabulary")))?;
            *end = Some(TokenId(id));
        }
        // Whether a first token is added is in the post-processor: see what becomes of a text.
        let plain = inner.encode_fast("a", false).map_err(|e| encode_error(&*e))?;
        let processed = inner.encode_fast("a", true).map_err(|e| encode_error(&*e))?;
        if let (Some(&first), false) =
            (processed.get_ids().first(), processed.get_ids().starts_with(plain.get_ids()))
        {
            ends.bos = ends.bos.or(Some(TokenId(first)));
            ends.adds_bos = ends.bos == Some(TokenId(first));
        }
        if byte_level {
            return Ok(Self::assemble(inner, ends));
        }
        let json = serde_json::from_slice(tokenizer)
            .map_err(|e| damaged("the file as JSON", e.to_string()))?;
        piece_files::from_json(&json, ends, origin)
    }

    /// Puts the parts of a byte-level tokenizer together, which both kinds of files give.
    pub(super) fn assemble(mut inner: tokenizers::Tokenizer, ends: Ends) -> Self {
        inner.set_encode_special_tokens(true);
        let decoder = inner.get_added_tokens_decoder();
        let added: Vec<AddedToken> = decoder
            .iter()
            .filter(|(_, token)| token.special || !token.normalized)
            .map(|(&id, token)| AddedToken {
                text: token.content.clone(),
                id: TokenId(id),
                special: token.special,
                lstrip: token.lstrip,
                rstrip: token.rstrip,
                single_word: token.single_word,
            })
            .collect();
        let mut bytes = TokenBytes::default();
        for (text, id) in inner.get_vocab(false) {
            bytes.set(TokenId(id), from_byte_level(&text));
        }
        for (&id, token) in &decoder {
            bytes.set(TokenId(id), token.content.clone().into_bytes());
        }
        Self::new(Cutter::ByteLevel(Box::new(inner)), added, bytes, ends)
    }

    /// Puts the parts of a tokenizer of pieces together; `texts` says what each token stands for.
    pub(super) fn of_pieces(
        pieces: Pieces,
        texts: Vec<(TokenId, Vec<u8>)>,
        added: Vec<AddedToken>,
        ends: Ends,
    ) -> Self {
        let mut bytes = TokenBytes::default();
        for (id, text) in texts {
            bytes.set(id, text);
        }
        Self::new(Cutter::Pieces(Box::new(pieces)), added, bytes, ends)
    }

    fn new(cutter: Cutter, added: Vec<AddedToken>, bytes: TokenBytes, ends: Ends) -> Self {
        let mut special_ids: Vec<TokenId> =
            added.iter().filter(|token| token.special).map(|token| token.id).collect();
        special_ids.sort_unstable();
        Self { cutter, added: AddedTokens::new(added), bytes, special_ids, ends }
    }

    /// The ids of a text as content: a special token that is written in it stays text. Nothing comes
    /// before the text, so a vocabulary of pieces may put a space there.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode_at(text, Place::Beginning)
    }

    /// As `encode`, for text that follows other text or generated tokens.
    pub fn encode_behind(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode_at(text, Place::Behind)
    }

    /// As `encode`, for text at any place.
    pub(super) fn encode_at(
        &self,
        text: &str,
        mut place: Place,
    ) -> Result<Vec<TokenId>, TokenizerError> {
        let pieces = match &self.cutter {
            Cutter::ByteLevel(inner) => {
                let encoding = inner.encode_fast(text, false).map_err(|e| encode_error(&*e))?;
                return Ok(encoding.get_ids().iter().map(|&id| TokenId(id)).collect());
            }
            Cutter::Pieces(pieces) => pieces,
        };
        let mut ids = Vec::new();
        for span in self.added.split_content(text) {
            match span {
                Span::Text(text) => {
                    pieces.encode(text, place, &mut ids).map_err(|c| TokenizerError::Encode {
                        why: format!("{c:?} is no piece, and there are no bytes to write it with"),
                    })?;
                }
                Span::Whole(id) => {
                    ids.push(id);
                    place = Place::BehindSpecial;
                }
            }
        }
        Ok(ids)
    }

    /// The ids of a text as a template writes it: special tokens are parsed. Nothing is added.
    pub fn encode_template(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ids = Vec::new();
        for span in self.added.split(text) {
            match span {
                Span::Text(text) => {
                    let place =
                        if ids.is_empty() { Place::Beginning } else { Place::BehindSpecial };
                    ids.extend(self.encode_at(text, place)?);
                }
                Span::Whole(id) => ids.push(id),
            }
        }
        Ok(ids)
    }

    /// The bytes that a token stands for; a special token's are its written form. None for an id
    /// that the vocabulary does not have (models may have more rows than tokens).
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.bytes.get(id)
    }

    /// The text of some ids, special tokens in their written form. Bytes that are not UTF-8 become
    /// U+FFFD; ids that are not in the vocabulary have no bytes.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let bytes: Vec<u8> =
            ids.iter().filter_map(|&id| self.token_bytes(id)).flatten().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One more than the highest id. A model may have more rows than this.
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// The id of a token by its exact written form: of an added token, or of a piece of text that
    /// is one token.
    pub fn token_id(&self, text: &str) -> Option<TokenId> {
        if let Some(token) = self.added.iter().find(|token| token.text == text) {
            return Some(token.id);
        }
        match &self.cutter {
            Cutter::ByteLevel(inner) => {
                inner.get_model_token(&to_byte_level(text.as_bytes())).map(TokenId)
            }
            Cutter::Pieces(pieces) => pieces.ids.get(&written_piece(text)).copied(),
        }
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<TokenId> {
        self.ends.bos
    }

    /// Whether a text is to begin with that token.
    pub fn adds_bos(&self) -> bool {
        self.ends.adds_bos
    }

    /// The token that ends a text (for many chat models: a turn).
    pub fn eos(&self) -> Option<TokenId> {
        self.ends.eos
    }

    /// The token that ends a turn, where a file names one beside `eos`.
    pub fn eot(&self) -> Option<TokenId> {
        self.ends.eot
    }

    /// The special (control) tokens, rising.
    pub fn special_ids(&self) -> &[TokenId] {
        &self.special_ids
    }

    /// Whether a token is a special (control) token.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.special_ids.binary_search(&id).is_ok()
    }

    pub(super) fn added(&self) -> &AddedTokens {
        &self.added
    }
}

/// The model's vocabulary alone, without the added tokens.
trait ModelToken {
    fn get_model_token(&self, token: &str) -> Option<u32>;
}

impl ModelToken for tokenizers::Tokenizer {
    fn get_model_token(&self, token: &str) -> Option<u32> {
        tokenizers::Model::token_to_id(self.get_model(), token)
    }
}

fn encode_error(error: &dyn std::error::Error) -> TokenizerError {
    TokenizerError::Encode { why: error.to_string() }
}

/// Ids are indices of tables here, so they may not lie far beyond the number of tokens.
fn check_ids(inner: &tokenizers::Tokenizer) -> Result<(), String> {
    let vocabulary = inner.get_vocab(true);
    let most = 2 * vocabulary.len() + 65_536;
    match vocabulary.iter().find(|(_, id)| **id as usize > most) {
        None => Ok(()),
        Some((token, id)) => {
            Err(format!("{token:?} has the id {id}, far beyond the {} tokens", vocabulary.len()))
        }
    }
}

/// Whether the BPE of a tokenizer.json is over bytes, and not over pieces; other models are refused.
fn is_byte_level(inner: &tokenizers::Tokenizer, path: &Path) -> Result<bool, TokenizerError> {
    let refused = |field, found: &str, supported| TokenizerError::Unsupported {
        path: path.to_owned(),
        field,
        found: found.to_owned(),
        supported,
    };
    let kind = match inner.get_model() {
        ModelWrapper::BPE(_) => "BPE",
        ModelWrapper::WordPiece(_) => "WordPiece",
        ModelWrapper::WordLevel(_) => "WordLevel",
        ModelWrapper::Unigram(_) => "Unigram",
    };
    if kind != "BPE" {
        return Err(refused("model.type", kind, "BPE, over bytes or pieces"));
    }
    let byte_level = match inner.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::ByteLevel(_)) => true,
        Some(PreTokenizerWrapper::Sequence(sequence)) => {
            sequence.as_ref().iter().any(|part| matches!(part, PreTokenizerWrapper::ByteLevel(_)))
        }
        _ => false,
    };
    if byte_level && !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
        return Err(refused("decoder", "not over bytes", "ByteLevel"));
    }
    Ok(byte_level)
}

/// The bytes of every token, one after the other.
#[derive(Clone, Debug, Default)]
struct TokenBytes {
    bytes: Vec<u8>,
    /// By id: where its bytes are.
    places: Vec<Option<(u32, u32)>>,
}

impl TokenBytes {
    fn set(&mut self, id: TokenId, bytes: Vec<u8>) {
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, None);
        }
        let (start, len) = (self.bytes.len() as u32, bytes.len() as u32);
        self.bytes.extend(bytes);
        self.places[id.index()] = Some((start, len));
    }

    fn get(&self, id: TokenId) -> Option<&[u8]> {
        let (start, len) = (*self.places.get(id.index())?)?;
        self.bytes.get(start as usize..start as usize + len as usize)
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

/// The character that stands for a byte in the vocabulary of a byte-level tokenizer (the printable
/// ones of Latin-1 for themselves, the others from U+0100 on).
fn byte_level_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character of the vocabulary stands for.
fn byte_level_byte(c: char) -> Option<u8> {
    static BYTES: std::sync::LazyLock<std::collections::HashMap<char, u8>> =
        std::sync::LazyLock::new(|| (0..=255).map(|b| (byte_level_char(b), b)).collect());
    BYTES.get(&c).copied()
}

/// The bytes of a token of the vocabulary; a token with other characters stands for itself.
fn from_byte_level(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_level_byte).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

fn to_byte_level(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| byte_level_char(b)).collect()
}
