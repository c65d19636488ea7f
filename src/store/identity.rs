//! Which files a model is, as one digest.

use std::path::{Path, PathBuf};

use super::digest::{remembered, sha256_of};
use super::error::StoreError;
use super::open::ModelFiles;
use super::sha256_of_text;

impl ModelFiles {
    /// What the model's answers depend on: the SHA-256 of a `.gguf` file, or of the list of names and
    /// SHA-256 of a model's shards or a folder's files. Reads every byte, unless the digest of a pulled file is remembered.
    pub fn digest(&self) -> Result<String, StoreError> {
        let of = |path: &Path| match remembered(path) {
            Some(sha256) => Ok(sha256),
            None => sha256_of(path),
        };
        let of_all = |files: &[PathBuf]| {
            let mut list = String::new();
            for file in files {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                list.push_str(&format!("{name} {}\n", of(file)?));
            }
            Ok(sha256_of_text(&list))
        };
        if let Self::Gguf(gguf) = self {
            let files = gguf.paths()?;
            return if let [file] = &files[..] { of(file) } else { of_all(&files) };
        }
        let path = self.path();
        let listed = std::fs::read_dir(path).map_err(|e| StoreError::io("read", path, e))?;
        let mut files = listed
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| StoreError::io("read", path, e))?;
        files.sort();
        files.retain(|file| {
            let kinds = ["json", "safetensors", "jinja", "gguf"];
            let counts = file.extension().is_some_and(|kind| kinds.iter().any(|one| kind == *one));
            counts && file.is_file()
        });
        of_all(&files)
    }
}
