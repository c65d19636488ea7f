//! Why the engine refused or could not go on.

use crate::model::AdapterId;
use crate::text::TokenId;

/// Why the engine refused a request or could not go on. What was refused changed nothing, and
/// other sessions go on; only `Stopped` is the end of all of them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error("no model was given to the engine; host at least one")]
    NoModels,
    #[error("two hosted models are named {name:?}; give each its own name")]
    DuplicateModel { name: String },
    #[error("model {model:?}: {what}")]
    BadModel { model: String, what: String },
    #[error("engine option {option} is {value}; {limit}")]
    BadOption { option: &'static str, value: String, limit: &'static str },
    #[error("no model {name:?} is hosted; hosted are: {hosted}")]
    UnknownModel { name: String, hosted: String },
    #[error("model {model:?} has no adapter {}; it has {known}", .adapter.0)]
    UnknownAdapter { model: String, adapter: AdapterId, known: usize },
    #[error(
        "token id {} is outside the vocabulary of {model:?} ({vocab_size} ids); \
         encode the text with that model's own tokenizer", .id.0
    )]
    OutsideVocabulary { model: String, id: TokenId, vocab_size: usize },
    #[error(
        "{needed} positions are needed and a sequence of {model:?} has at most {limit} here (what the \
         model was trained for, or what was asked for, or what the memory for pages holds); shorten \
         it, rewind, or host the model with a longer context or more memory"
    )]
    ContextOverflow { model: String, needed: usize, limit: usize },
    #[error(
        "{needed} more pages are needed and {free} of {total} can be had on {model:?}; \
         shorten the sequence, or start the engine with more pages"
    )]
    PagesExhausted { model: String, needed: usize, free: usize, total: usize },
    #[error(
        "the pages of all models may take {limit} bytes together, and one page of {model:?} takes \
         {needed}; give the pages more memory"
    )]
    PageMemory { model: String, needed: u64, limit: u64 },
    #[error(
        "position {position} has no statistics: a sequence of {length} ids has them at positions \
         from 1 to its last"
    )]
    NoSuchPosition { position: usize, length: usize },
    #[error("the call's time is over; give it a later deadline, or ask for less")]
    DeadlinePassed,
    #[error("the sequence is empty, so nothing can follow from it; append at least one id first")]
    EmptySequence,
    #[error("sampling option {option} is {value}; {limit}")]
    BadSampling { option: &'static str, value: String, limit: String },
    #[error(
        "the mark at position {position} is no longer in the sequence (it was rewound past, or \
         belongs to another session); take a new mark"
    )]
    StaleMark { position: usize },
    #[error(
        "{model:?} gave the logit {value} for token id {} after position {position}; \
         its weights are damaged or it overflows in this format", .token.0
    )]
    NotFinite { model: String, position: usize, token: TokenId, value: f32 },
    #[error(
        "{model:?} gave a number that is not finite at position {position}: its weights are damaged, \
         or keys and values are beyond the range of an f16 cache (then host it with an f32 one)"
    )]
    DamagedRow { model: String, position: usize },
    #[error("{model:?} could not run: {what}")]
    Model { model: String, what: String },
    #[error("the call was given up: another message came for its session")]
    Cancelled,
    #[error("the books do not balance: {what} (a fault of the engine; please report it)")]
    Unbalanced { what: String },
    #[error("the engine stopped: {what}")]
    Stopped { what: String },
}
