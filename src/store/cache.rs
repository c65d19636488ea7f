//! The cache folder, and where things lie in it.

use std::path::{Path, PathBuf};

use super::error::StoreError;

/// The folder that pulled models are kept in: `<root>/models/<name>/<file>`,
/// and `<root>/models/hf/<owner>--<name>/` for what was named as the hub names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
    manifests: PathBuf,
}

impl Cache {
    /// The user's cache: `$UNSAY_CACHE`, or `unsay` in the system's cache folder. Manifests of the
    /// user's own are read from `unsay/models` in the system's configuration folder.
    pub fn locate() -> Result<Self, StoreError> {
        let set = std::env::var_os("UNSAY_CACHE").filter(|value| !value.is_empty());
        let root = match set {
            Some(folder) => PathBuf::from(folder),
            None => dirs::cache_dir().ok_or(StoreError::NoCache)?.join("unsay"),
        };
        let manifests = match dirs::config_dir() {
            Some(folder) => folder.join("unsay").join("models"),
            None => root.join("manifests"),
        };
        Ok(Self { root, manifests })
    }

    /// A cache at a folder of the caller's choice, with the user's manifests in `manifests` of it.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let manifests = root.join("manifests");
        Self { root, manifests }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where manifests (`*.toml`) of the user's own are read from.
    pub fn manifests(&self) -> &Path {
        &self.manifests
    }

    /// Where models of the hub lie, each in a folder of its own.
    pub fn hub_folder(&self) -> PathBuf {
        self.root.join("models").join("hf")
    }

    /// The folder of one model.
    pub fn model_folder(&self, name: &str) -> PathBuf {
        self.root.join("models").join(name)
    }
}
