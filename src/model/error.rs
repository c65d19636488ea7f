//! Why a model could not be loaded or run.

use crate::device::DeviceError;
use crate::store::GgufError;
use std::path::PathBuf;

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A model, an option of one, or a request that this build does not run; says what to do.
    #[error("{what}")]
    Unsupported { what: String },
    /// What a file says of a model cannot be; `what` names the key.
    #[error("{}: {what}", file.display())]
    Config { file: PathBuf, what: String },
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("{}: the tensor {tensor} is missing; fetch the model's files again", file.display())]
    MissingTensor { file: PathBuf, tensor: String },
    #[error(
        "{}: tensor {tensor} has shape {found:?}, but the model's options ask for {expected:?}; \
         the weights and the configuration do not belong together, so fetch both again",
        file.display()
    )]
    Shape { file: PathBuf, tensor: String, found: Vec<usize>, expected: Vec<usize> },
    #[error("a model needs at least one page of 16 positions; none was given")]
    NoPages,
    #[error(
        "a context of {context} positions is asked for; the model was trained for {trained}, so give \
         1 to {trained}"
    )]
    Context { context: usize, trained: usize },
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("row {row} of the batch: {problem}")]
    Batch { row: usize, problem: BatchProblem },
    #[error(
        "hidden row {index} is asked for at page {page}, offset {offset}; the arena has {pages} pages of 16"
    )]
    NoSuchHidden { index: usize, page: u32, offset: usize, pages: usize },
    #[error(
        "hidden row {index} is asked for at page {page}, offset {offset}, which is not of the last \
         forward pass, and this model is hosted without kept hidden rows; forward that position again, \
         or host the model with them"
    )]
    HiddenNotKept { index: usize, page: u32, offset: usize },
    #[error("room for {expected} logits is needed, {found} were given")]
    LogitsRoom { expected: usize, found: usize },
}

/// Which rule of a batch a row breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchProblem {
    #[error("slot {slot} has no page table; the batch has {slots}")]
    NoSlot { slot: usize, slots: usize },
    #[error("token id {token} is outside the vocabulary of {vocab}")]
    NoToken { token: u32, vocab: usize },
    #[error("position {position} is beyond the context of {context} positions")]
    BeyondContext { position: usize, context: usize },
    #[error("position {position} needs {needed} pages, the slot's table has {found}")]
    ShortTable { position: usize, needed: usize, found: usize },
    #[error("page {page} is outside the arena of {pages}")]
    NoPage { page: u32, pages: usize },
    #[error("position {position} does not follow the slot's row before it; {expected} would")]
    NotRising { position: usize, expected: usize },
    #[error(
        "page {page} is written by slot {other} too; pages that are written belong to one slot"
    )]
    SharedPage { page: u32, other: usize },
    #[error("adapter {adapter} is asked for; the model was loaded with {known}, numbered from 0")]
    Adapter { adapter: u32, known: usize },
}

impl ModelError {
    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::Unsupported { what: what.into() }
    }
}
