//! A tokenizer out of GGUF metadata. Such a file names how text is cut before BPE
//! (`tokenizer.ggml.pre`) without saying what the name means: that is the table here.

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, PreTokenizerWrapper};

use super::tokenizer::{Ends, Tokenizer, TokenizerError};
use super::{TokenId, piece_files};
use crate::store::{Gguf, Metadata};

/// How text is cut before BPE, by the names that GGUF files have for it.
struct PreTokenizer {
    names: &'static [&'static str],
    cut: Cut,
    /// Text is brought into normalization form C first.
    nfc: bool,
    /// A piece that is a token as it stands is taken whole, merges or not.
    whole_pieces: bool,
    /// What holds when the file does not say whether texts begin with BOS.
    adds_bos: bool,
}

/// The ways of cutting.
enum Cut {
    /// The pattern of GPT-2.
    Words,
    /// Each digit alone, then the pattern of GPT-2.
    DigitsThenWords,
    /// A pattern of its own.
    Pattern(&'static str),
}

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &["smollm"],
        cut: Cut::DigitsThenWords,
        nfc: false,
        whole_pieces: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["gpt-2", "gpt2"],
        cut: Cut::Words,
        nfc: false,
        whole_pieces: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen"],
        cut: Cut::Pattern(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        nfc: true,
        whole_pieces: false,
        adds_bos: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        cut: Cut::Pattern(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        nfc: false,
        whole_pieces: true,
        adds_bos: true,
    },
];

const SUPPORTED: &str = "smollm, gpt-2, qwen2, llama-bpe";

/// The kinds of tokens that `tokenizer.ggml.token_type` tells apart.
pub(super) mod token_type {
    pub(in crate::text) const UNKNOWN: i32 = 2;
    pub(in crate::text) const CONTROL: i32 = 3;
    pub(in crate::text) const USER_DEFINED: i32 = 4;
    pub(in crate::text) const UNUSED: i32 = 5;
    pub(in crate::text) const BYTE: i32 = 6;
}

impl Tokenizer {
    /// Makes the tokenizer that a GGUF file describes: a byte-level BPE whose pre-tokenizer is one
    /// of the table here, or pieces with scores (`llama`); every other kind is refused by name.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        let metadata = gguf.metadata();
        let refused = |field, found: &str, supported| TokenizerError::Unsupported {
            path: gguf.path().to_owned(),
            field,
            found: found.to_owned(),
            supported,
        };
        let model = metadata.string("tokenizer.ggml.model")?;
        match model {
            "gpt2" => {}
            "llama" => return piece_files::from_gguf(gguf),
            other => return Err(refused("tokenizer.ggml.model", other, "gpt2, llama")),
        }
        let pre = metadata.string("tokenizer.ggml.pre")?;
        let kind = PRE_TOKENIZERS.iter().find(|kind| kind.names.contains(&pre));
        let kind = kind.ok_or_else(|| refused("tokenizer.ggml.pre", pre, SUPPORTED))?;
        let tokens = metadata.strings("tokenizer.ggml.tokens")?;
        let mut inner = tokenizers::Tokenizer::new(bpe(metadata, &tokens, kind.whole_pieces)?);
        inner.with_pre_tokenizer(Some(
            pre_tokenizer(&kind.cut).map_err(|e| damaged(metadata, pre, &*e))?,
        ));
        inner.with_decoder(Some(ByteLevel::new(false, true, true)));
        if kind.nfc {
            inner.with_normalizer(Some(NFC)).map_err(|e| damaged(metadata, pre, &*e))?;
        }
        let added = added_tokens(metadata, &tokens)?;
        inner.add_tokens(added).map_err(|e| damaged(metadata, "tokenizer.ggml.tokens", &*e))?;
        Ok(Self::assemble(inner, ends(metadata, tokens.len(), kind.adds_bos)?))
    }
}

fn bpe(metadata: &Metadata, tokens: &[&str], whole_pieces: bool) -> Result<BPE, TokenizerError> {
    let key = "tokenizer.ggml.merges";
    let mut merges = Vec::new();
    for merge in metadata.strings(key)? {
        // The first character belongs to the left part whatever it is.
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let space = merge[first..].find(' ').map(|at| at + first);
        let Some(space) = space else {
            return Err(damaged(metadata, key, &*Box::from(format!("{merge:?} is not a pair"))));
        };
        merges.push((merge[..space].to_owned(), merge[space + 1..].to_owned()));
    }
    let ids = 0..tokens.len() as u32;
    let vocab = tokens.iter().map(|&token| token.to_owned()).zip(ids).collect();
    BPE::builder()
        .vocab_and_merges::<tokenizers::models::bpe::Vocab>(vocab, merges)
        .ignore_merges(whole_pieces)
        .build()
        .map_err(|e| damaged(metadata, key, &*e))
}

fn pre_tokenizer(cut: &Cut) -> tokenizers::Result<PreTokenizerWrapper> {
    let bytes = |use_regex| ByteLevel::new(false, true, use_regex).into();
    Ok(match cut {
        Cut::Words => bytes(true),
        Cut::DigitsThenWords => Sequence::new(vec![Digits::new(true).into(), bytes(true)]).into(),
        Cut::Pattern(pattern) => {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
            Sequence::new(vec![split.into(), bytes(false)]).into()
        }
    })
}

/// The tokens that are matched as a whole: control tokens, which are special, and user-defined
/// ones, which are not.
fn added_tokens(metadata: &Metadata, tokens: &[&str]) -> Result<Vec<AddedToken>, TokenizerError> {
    let key = "tokenizer.ggml.token_type";
    let kinds = metadata.i32s(key)?;
    if kinds.len() != tokens.len() {
        let why = format!("has {} entries for {} tokens", kinds.len(), tokens.len());
        return Err(damaged(metadata, key, &*Box::from(why)));
    }
    let mut added = Vec::new();
    for (&token, kind) in tokens.iter().zip(kinds) {
        let special = matches!(kind, token_type::CONTROL | token_type::UNKNOWN);
        if special || kind == token_type::USER_DEFINED {
            added.push(AddedToken::from(token, special).normalized(false));
        }
    }
    Ok(added)
}

pub(super) fn ends(
    metadata: &Metadata,
    tokens: usize,
    adds_bos: bool,
) -> Result<Ends, TokenizerError> {
    let id = |key: &str| -> Result<Option<TokenId>, TokenizerError> {
        if !metadata.contains(key) {
            return Ok(None);
        }
        let id = TokenId(metadata.u32(key)?);
        if id.index() >= tokens {
            let why = format!("{} is not the id of one of the {tokens} tokens", id.0);
            return Err(damaged(metadata, key, &*Box::from(why)));
        }
        Ok(Some(id))
    };
    let key = "tokenizer.ggml.add_bos_token";
    let adds_bos = if metadata.contains(key) { metadata.bool(key)? } else { adds_bos };
    Ok(Ends {
        bos: id("tokenizer.ggml.bos_token_id")?,
        eos: id("tokenizer.ggml.eos_token_id")?,
        eot: id("tokenizer.ggml.eot_token_id")?,
        adds_bos,
    })
}

pub(super) fn damaged(
    metadata: &Metadata,
    field: &str,
    why: &(dyn std::error::Error + Send + Sync),
) -> TokenizerError {
    TokenizerError::Damaged {
        path: metadata.path().to_owned(),
        field: field.to_owned(),
        why: why.to_string(),
    }
}
