//! From a name or a path to a model's mapped files.

use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::error::StoreError;
use super::gguf::Gguf;
use super::manifest::manifests;
use super::pull::check;
use super::safetensors::SafetensorsModel;
use super::weights::Tensor;

/// A model's mapped files, of either format.
#[derive(Clone, Debug)]
pub enum ModelFiles {
    Gguf(Gguf),
    Safetensors(SafetensorsModel),
}

impl ModelFiles {
    /// The .gguf file or the model folder.
    pub fn path(&self) -> &Path {
        match self {
            Self::Gguf(gguf) => gguf.path(),
            Self::Safetensors(model) => model.folder(),
        }
    }

    /// A tensor by its name in the files, as a view of the mapping.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        match self {
            Self::Gguf(gguf) => gguf.tensor(name),
            Self::Safetensors(model) => model.tensor(name),
        }
    }

    /// The names of all tensors, sorted.
    pub fn tensor_names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::Gguf(gguf) => Box::new(gguf.tensor_names()),
            Self::Safetensors(model) => Box::new(model.tensor_names()),
        }
    }

    /// Bytes of all mappings together.
    pub fn bytes_mapped(&self) -> u64 {
        match self {
            Self::Gguf(gguf) => gguf.bytes_mapped(),
            Self::Safetensors(model) => model.bytes_mapped(),
        }
    }
}

/// Opens a model: by the name of a manifest (pulled already), by the path of a .gguf file, or by
/// the path of a folder with config.json and *.safetensors.
///
/// A text with a slash or one that ends in .gguf is a path; any other is a name first, and a path
/// if no manifest has that name.
pub fn open(name_or_path: &str, cache: &Cache) -> Result<ModelFiles, StoreError> {
    let path = Path::new(name_or_path);
    let is_path = name_or_path.contains(std::path::is_separator)
        || path.extension().is_some_and(|extension| extension == "gguf");
    if is_path {
        return open_path(path);
    }
    let manifests = manifests(cache)?;
    if let Some(manifest) = manifests.get(name_or_path) {
        let (name, path) = (manifest.name.clone(), manifest.file_in(cache));
        if !manifest.is_in(cache)? {
            return Err(StoreError::NotPulled { name });
        }
        if let Err(why) = check(manifest, &path)? {
            return Err(StoreError::Damaged { name, path, why });
        }
        return Ok(ModelFiles::Gguf(Gguf::open(&path)?));
    }
    if path.try_exists().map_err(|e| StoreError::io("look at", path, e))? {
        return open_path(path);
    }
    let known = manifests.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    Err(StoreError::UnknownModel { name: name_or_path.to_owned(), known })
}

fn open_path(path: &Path) -> Result<ModelFiles, StoreError> {
    let facts = path.metadata().map_err(|e| StoreError::io("open", path, e))?;
    if facts.is_dir() {
        if !path.join("config.json").is_file() {
            return Err(StoreError::NotAModel {
                path: PathBuf::from(path),
                why: "holds no config.json; give a folder with config.json and *.safetensors, or a \
                      .gguf file",
            });
        }
        return Ok(ModelFiles::Safetensors(SafetensorsModel::open(path)?));
    }
    Ok(ModelFiles::Gguf(Gguf::open(path)?))
}
