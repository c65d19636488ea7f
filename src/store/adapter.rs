//! LoRA adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::error::StoreError;
use super::safetensors::{read_json, read_tensors};
use super::weights::Tensor;

const WEIGHTS: &str = "adapter_model.safetensors";

/// An adapter's folder with its tensors mapped. Clones share them.
#[derive(Clone)]
pub struct AdapterFiles {
    folder: PathBuf,
    config: Arc<Value>,
    tensors: Arc<BTreeMap<String, Tensor>>,
}

impl std::fmt::Debug for AdapterFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdapterFiles")
            .field("folder", &self.folder)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl AdapterFiles {
    /// Opens a folder. Weights are F32, F16 or BF16; what they mean is not looked at.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let (config, weights) = (folder.join("adapter_config.json"), folder.join(WEIGHTS));
        let not_one = |why| StoreError::NotAModel { path: folder.to_owned(), why };
        if !config.is_file() {
            return Err(not_one(
                "holds no adapter_config.json; give the folder of a LoRA adapter in PEFT's format",
            ));
        }
        if !weights.is_file() {
            return Err(not_one(
                "holds no adapter_model.safetensors; save the adapter as safetensors (adapter_model.bin \
                 is not read)",
            ));
        }
        let config = Arc::new(read_json(&config)?);
        let mut tensors = BTreeMap::new();
        read_tensors(&weights, &mut tensors)?;
        Ok(Self { folder: folder.to_owned(), config, tensors: Arc::new(tensors) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The SHA-256 of the names and SHA-256 of both files.
    pub fn digest(&self) -> Result<String, StoreError> {
        let mut list = String::new();
        for name in ["adapter_config.json", WEIGHTS] {
            list.push_str(&format!("{name} {}\n", super::sha256_of(&self.folder.join(name))?));
        }
        Ok(super::sha256_of_text(&list))
    }

    /// adapter_config.json.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// A tensor by its name in the file, as a view of the mapping.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        self.tensors.get(name).cloned()
    }

    /// The names of all tensors, sorted.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }
}
