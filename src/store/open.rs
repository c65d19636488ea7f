//! From a name or a path to a model's mapped files.

use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::catalogue::manifests;
use super::error::StoreError;
use super::gguf::Gguf;
use super::package::Package;
use super::safetensors::SafetensorsModel;
use super::spec::HubSpec;
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

/// Opens a model: by the name of a manifest, alone or with a quantisation (`NAME:QUANTISATION`), or by
/// `hf:owner/name[@revision][:file]`, pulled already; by the path of a .gguf file, or by the path of a
/// folder with config.json and *.safetensors.
///
/// A text with a slash or one that ends in .gguf is a path, unless it begins with hf:; any other is a
/// name first, and a path if no manifest has that name.
pub fn open(name_or_path: &str, cache: &Cache) -> Result<ModelFiles, StoreError> {
    match named(name_or_path, cache)? {
        Some(package) => package.open(),
        None => open_path(Path::new(name_or_path)),
    }
}

impl Package {
    /// Opens its files, which must be here and what they should be.
    pub fn open(&self) -> Result<ModelFiles, StoreError> {
        open_path(&self.checked_entry()?)
    }
}

/// The model that a text names; None where it is the path of one that lies there.
pub fn named(name_or_path: &str, cache: &Cache) -> Result<Option<Package>, StoreError> {
    let path = Path::new(name_or_path);
    let is_path = name_or_path.contains(std::path::is_separator)
        || path.extension().is_some_and(|extension| extension == "gguf");
    if is_path && !HubSpec::is_meant(name_or_path) {
        return Ok(None);
    }
    if let Some(package) = Package::find(name_or_path, cache)? {
        return Ok(Some(package));
    }
    if path.try_exists().map_err(|e| StoreError::io("look at", path, e))? {
        return Ok(None);
    }
    let known = manifests(cache)?.into_keys().collect::<Vec<_>>().join(", ");
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
