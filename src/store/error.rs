//! What can go wrong between a name or a path and mapped weights, with what to do about it.

use std::path::{Path, PathBuf};

use super::gguf::GgufError;
use super::spec::SpecError;

/// Why a model's files could not be found, fetched or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "no cache folder: neither UNSAY_CACHE nor a home folder is set; set UNSAY_CACHE to a folder \
         that may be written"
    )]
    NoCache,
    #[error("{}: {field}: {why}; correct the manifest", path.display())]
    Manifest { path: PathBuf, field: String, why: String },
    #[error(transparent)]
    Spec { source: SpecError },
    #[error("the model {name} has no quantisation `{quantisation}`; it has {known}")]
    UnknownVariant { name: String, quantisation: String, known: String },
    #[error(
        "no model is called `{name}` and no file or folder lies at that path; known models: {known}; \
         or give hf:owner/name, or the path of a .gguf file or of a folder with config.json and \
         *.safetensors"
    )]
    UnknownModel { name: String, known: String },
    #[error("the model `{name}` is not on this machine yet; run `unsay pull {name}`")]
    NotPulled { name: String },
    #[error("{} {why}; run `unsay pull {name}` to fetch it again", path.display())]
    Damaged { name: String, path: PathBuf, why: String },
    #[error("{}: {field}: {why}", path.display())]
    Json { path: PathBuf, field: String, why: String },
    #[error("{}: {what}: {why}", path.display())]
    Safetensors { path: PathBuf, what: String, why: String },
    #[error("{}: {why}", path.display())]
    NotAModel { path: PathBuf, why: &'static str },
    #[error(
        "the model `{name}` could not be fetched from any of its sources:\n{reasons}\n\
         mend one of them and pull again, or fetch its files by other means and give their path in \
         place of the name"
    )]
    PullFailed { name: String, reasons: String },
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io { doing, path: path.to_owned(), source }
    }
}
