//! All models that have a name: the bundled manifests and the user's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::error::StoreError;
use super::manifest::Manifest;

macro_rules! bundled {
    ($($name:literal)*) => {
        /// The manifests that come with the crate, by file name.
        pub(super) const BUNDLED: &[(&str, &str)] = &[$((
            concat!("models/", $name, ".toml"),
            include_str!(concat!("../../models/", $name, ".toml")),
        )),*];
    };
}

bundled! {
    "llama-3-8b-instruct"
    "llama-3.1-8b-instruct"
    "llama-3.2-1b-instruct"
    "llama-3.2-3b-instruct"
    "llama-3.3-70b-instruct"
    "qwen2.5-0.5b-instruct"
    "qwen2.5-1.5b-instruct"
    "qwen2.5-7b-instruct"
    "qwen2.5-14b-instruct"
    "qwen2.5-32b-instruct"
    "qwen2.5-72b-instruct"
    "qwen2.5-coder-7b-instruct"
    "qwen2.5-math-prm-7b"
    "qwen3-4b"
    "qwen3-8b"
    "qwen3-14b"
    "skywork-o1-open-prm-qwen-2.5-1.5b"
    "smollm2-135m-instruct"
    "smollm2-360m-instruct"
    "smollm2-1.7b-instruct"
}

/// All models that have a name: the bundled ones and the user's, by name. A manifest of the user's
/// takes the place of a bundled one of the same name.
pub fn manifests(cache: &Cache) -> Result<BTreeMap<String, Manifest>, StoreError> {
    let mut all = BTreeMap::new();
    for (origin, text) in BUNDLED {
        let manifest = Manifest::parse(text, Path::new(origin))?;
        all.insert(manifest.name.clone(), manifest);
    }
    let mut own: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in toml_files(cache.manifests())? {
        let text = std::fs::read_to_string(&path).map_err(|e| StoreError::io("read", &path, e))?;
        let manifest = Manifest::parse(&text, &path)?;
        if let Some(other) = own.insert(manifest.name.clone(), path.clone()) {
            let why = format!("{:?} is also the name in {}", manifest.name, other.display());
            return Err(StoreError::Manifest { path, field: "name".to_owned(), why });
        }
        all.insert(manifest.name.clone(), manifest);
    }
    Ok(all)
}

/// The .toml files of a folder, sorted; none if there is no such folder.
fn toml_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(StoreError::io("list", folder, e)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| StoreError::io("list", folder, e))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_of_the_folder_is_bundled_under_its_own_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
        let there: Vec<String> = toml_files(&folder)
            .unwrap()
            .iter()
            .map(|path| format!("models/{}", path.file_name().unwrap().to_str().unwrap()))
            .collect();
        let mut bundled: Vec<String> = BUNDLED.iter().map(|(name, _)| (*name).to_owned()).collect();
        bundled.sort();
        assert_eq!(there, bundled);
        for (origin, text) in BUNDLED {
            let manifest = Manifest::parse(text, Path::new(origin)).unwrap();
            assert_eq!(*origin, format!("models/{}.toml", manifest.name));
            assert!(manifest.shape.is_some(), "{origin} has no shape to estimate by");
        }
    }
}
