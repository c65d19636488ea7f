//! From a name to a model's files in the cache: one variant of a manifest, or what was asked of the
//! hub, with what earlier pulls recorded of it.
//!
//! A record (`*.pulled.toml`) is a manifest with everything filled in: names, sizes, digests, the
//! commit. It is written when the last file is in its place, so a model that needs one and has none
//! is not here, whatever files lie in its folder. Digests that no manifest gives are taken from the
//! record: what came first is what must be there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::catalogue::manifests;
use super::error::StoreError;
use super::manifest::{Manifest, ModelFile, Source, Variant};
use super::pull::check_file;
use super::spec::HubSpec;

/// One model that lies in the cache or can be pulled into it.
#[derive(Clone, Debug)]
pub struct Package {
    /// What the user calls it: NAME, NAME:QUANTISATION or hf:….
    pub name: String,
    /// The manifest that it is of; of a model of the hub that was not pulled yet, an empty one.
    pub manifest: Manifest,
    /// Its files, sizes and digests as far as they are known. None are known of a repository that was
    /// not listed yet.
    pub variant: Variant,
    /// Whether an earlier pull wrote a record.
    pub is_recorded: bool,
    pub(super) folder: PathBuf,
    /// What was asked of the hub.
    pub(super) spec: Option<HubSpec>,
}

impl Package {
    /// A model by the name of a manifest (and of a quantisation behind a colon), or by its name on the
    /// hub; None where no manifest has the name.
    pub fn find(name: &str, cache: &Cache) -> Result<Option<Self>, StoreError> {
        if HubSpec::is_meant(name) {
            let spec = name.parse().map_err(|e| StoreError::Spec { source: e })?;
            return Self::of_hub(spec, cache).map(Some);
        }
        let (name, quantisation) = match name.split_once(':') {
            Some((name, quantisation)) => (name, Some(quantisation)),
            None => (name, None),
        };
        match manifests(cache)?.remove(name) {
            Some(manifest) => Self::of_manifest(&manifest, quantisation, cache).map(Some),
            None => Ok(None),
        }
    }

    /// One variant of a manifest; the first where no quantisation is named.
    pub fn of_manifest(
        manifest: &Manifest,
        quantisation: Option<&str>,
        cache: &Cache,
    ) -> Result<Self, StoreError> {
        let Some(variant) = manifest.variant(quantisation) else {
            let known = manifest.variants.iter().map(|variant| variant.quantisation.as_str());
            return Err(StoreError::UnknownVariant {
                name: manifest.name.clone(),
                quantisation: quantisation.unwrap_or_default().to_owned(),
                known: known.collect::<Vec<_>>().join(", "),
            });
        };
        let is_first = manifest.variants.first() == Some(variant);
        let name = match is_first {
            true => manifest.name.clone(),
            false => format!("{}:{}", manifest.name, variant.quantisation.to_lowercase()),
        };
        let mut folder = cache.model_folder(&manifest.name);
        // A checkpoint is a folder of its own.
        if variant.files.is_empty() {
            folder.push(variant.quantisation.to_lowercase());
        }
        let package = Self {
            name,
            manifest: manifest.clone(),
            variant: variant.clone(),
            is_recorded: false,
            folder,
            spec: None,
        };
        package.with_record()
    }

    fn of_hub(spec: HubSpec, cache: &Cache) -> Result<Self, StoreError> {
        let source = Source::Hub {
            repo: spec.repo.clone(),
            revision: spec.revision().to_owned(),
            folder: None,
        };
        let variant =
            Variant { quantisation: "HUB".into(), files: Vec::new(), sources: vec![source] };
        let name = spec.to_string();
        let manifest = Manifest {
            name: name.clone(),
            display_name: name.clone(),
            licence: NOT_STATED.to_owned(),
            role: Default::default(),
            verifier_format: None,
            template: None,
            stop_tokens: Vec::new(),
            shape: None,
            sources: Vec::new(),
            variants: vec![variant.clone()],
        };
        let folder = cache.hub_folder().join(spec.folder());
        Self { name, manifest, variant, is_recorded: false, folder, spec: Some(spec) }.with_record()
    }

    /// Fills in what an earlier pull recorded.
    pub(super) fn with_record(mut self) -> Result<Self, StoreError> {
        let path = self.record();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(self),
            Err(e) => return Err(StoreError::io("read", &path, e)),
        };
        let record = Manifest::parse_record(&text, &path)?;
        let Some(variant) = record.variants.first().filter(|_| record.name == self.manifest.name)
        else {
            let why = format!("is {:?}, where the record of {:?} belongs", record.name, self.name);
            return Err(StoreError::Manifest { path, field: "name".into(), why });
        };
        self.is_recorded = true;
        if self.variant.files.is_empty() {
            self.variant.files = variant.files.clone();
        }
        for file in &mut self.variant.files {
            let recorded = variant.files.iter().find(|other| other.name == file.name);
            if file.sha256.is_none()
                && let Some(recorded) = recorded
                && (file.bytes.is_none() || file.bytes == recorded.bytes)
            {
                *file = recorded.clone();
            }
        }
        if self.spec.is_some() {
            // Fetched again, it is of the same commit.
            self.variant.sources = variant.sources.clone();
            self.manifest = record;
        }
        Ok(self)
    }

    /// Where its record lies.
    pub(super) fn record(&self) -> PathBuf {
        self.folder.join(format!("{}.pulled.toml", self.variant.quantisation.to_lowercase()))
    }

    /// Where it can be fetched from, in the order of trying.
    pub fn sources(&self) -> &[Source] {
        self.manifest.sources_of(&self.variant)
    }

    /// Where a file of it lies, pulled or not.
    pub fn path_of(&self, file: &ModelFile) -> PathBuf {
        self.folder.join(&file.name)
    }

    /// What is opened: the first .gguf file, else the folder.
    pub fn entry(&self) -> PathBuf {
        match self.variant.files.iter().find(|file| file.name.ends_with(".gguf")) {
            Some(file) => self.path_of(file),
            None => self.folder.clone(),
        }
    }

    /// Bytes of all files, where they are known.
    pub fn bytes(&self) -> Option<u64> {
        let known = !self.variant.files.is_empty();
        let sum = self.variant.files.iter().map(|file| file.bytes).sum::<Option<u64>>();
        sum.filter(|_| known)
    }

    /// Whether every file's digest is known.
    pub fn is_known(&self) -> bool {
        let files = &self.variant.files;
        !files.is_empty() && files.iter().all(|file| file.sha256.is_some())
    }

    /// Whether all files are in the cache. Something else in a file's place, or a folder that may not
    /// be looked into, is an error and not an absence.
    pub fn is_here(&self) -> Result<bool, StoreError> {
        if !self.is_known() {
            return Ok(false);
        }
        for file in &self.variant.files {
            if !is_file(&self.path_of(file))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What is wrong with the files that are here, if anything is: sizes, and digests, which are only
    /// computed where they are not remembered.
    pub(super) fn fault(&self) -> Result<Option<(PathBuf, String)>, StoreError> {
        for file in &self.variant.files {
            let path = self.path_of(file);
            if let Err(why) = check_file(file, &path)? {
                return Ok(Some((path, why)));
            }
        }
        Ok(None)
    }

    /// What opens it, checked; it must be here.
    pub(super) fn checked_entry(&self) -> Result<PathBuf, StoreError> {
        let name = self.name.clone();
        if !self.is_here()? {
            return Err(StoreError::NotPulled { name });
        }
        match self.fault()? {
            None => Ok(self.entry()),
            Some((path, why)) => Err(StoreError::Damaged { name, path, why }),
        }
    }
}

/// The licence where none is stated.
pub(super) const NOT_STATED: &str = "not stated";

/// Whether a regular file lies at a path.
pub(super) fn is_file(path: &Path) -> Result<bool, StoreError> {
    match path.metadata() {
        Ok(facts) if facts.is_file() => Ok(true),
        Ok(_) => Err(StoreError::NotAModel {
            path: path.to_owned(),
            why: "is not a regular file; remove it and pull the model again",
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(StoreError::io("look at", path, e)),
    }
}

/// The models of the hub that were pulled, by name. A record that cannot be read is the value of its
/// folder's name.
pub fn pulled_from_hub(
    cache: &Cache,
) -> Result<BTreeMap<String, Result<Package, StoreError>>, StoreError> {
    let mut all = BTreeMap::new();
    let folder = cache.hub_folder();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(all),
        Err(e) => return Err(StoreError::io("list", &folder, e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| StoreError::io("list", &folder, e))?;
        let record = entry.path().join("hub.pulled.toml");
        if !record.is_file() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        match of_record(&record, cache) {
            Ok(package) => all.insert(package.name.clone(), Ok(package)),
            Err(error) => all.insert(name, Err(error)),
        };
    }
    Ok(all)
}

fn of_record(record: &Path, cache: &Cache) -> Result<Package, StoreError> {
    let text = std::fs::read_to_string(record).map_err(|e| StoreError::io("read", record, e))?;
    let name = Manifest::parse_record(&text, record)?.name;
    let spec = name.parse().map_err(|e| StoreError::Spec { source: e })?;
    Package::of_hub(spec, cache)
}
