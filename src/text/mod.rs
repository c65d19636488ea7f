//! Text to token ids and back: tokenizers, streaming detokenisation, chat templates.
//! Uses `store`.

mod detokenizer;
mod gguf;
mod jinja;
mod json;
mod piece_files;
mod pieces;
mod specials;
mod stops;
mod template;
mod tokenizer;

pub use detokenizer::Detokenizer;
pub use stops::stop_ids;
pub use template::{ChatTemplate, Content, Message, TemplateError};
pub use tokenizer::{Tokenizer, TokenizerError};

/// The id of one token in a model's vocabulary.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
#[repr(transparent)]
pub struct TokenId(pub u32);

impl TokenId {
    /// The id as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who says a message of a dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
}

impl Role {
    /// The role as templates and servers write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}
