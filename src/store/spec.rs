//! Models of the hub as users name them: `hf:owner/name[@revision][:file]`.

use std::fmt;
use std::str::FromStr;

use super::manifest::{is_path, is_repository, is_revision};

/// What such names begin with.
const PREFIX: &str = "hf:";

/// The revision where none is named.
const MAIN: &str = "main";

/// A repository of the hub, or one file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSpec {
    /// owner/name
    pub repo: String,
    /// A branch, a tag or a commit, where one was named.
    pub revision: Option<String>,
    /// A .gguf file (of several shards, any of them); none: the checkpoint in safetensors.
    pub file: Option<String>,
}

/// Why a text names nothing of the hub.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {why}; write hf:owner/name, hf:owner/name@revision or hf:owner/name:file.gguf")]
pub struct SpecError {
    text: String,
    why: &'static str,
}

impl HubSpec {
    /// Whether a text is meant to be such a name.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// The revision that is asked for.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }

    /// The name of its folder in the cache. No other has the same: the hub has no `--` in the names of
    /// repositories, and no `%` is taken here.
    pub(super) fn folder(&self) -> String {
        let mut name = self.repo.replace('/', "--");
        for (sign, part) in [("@", &self.revision), ("%%", &self.file)] {
            if let Some(part) = part {
                name.push_str(sign);
                name.push_str(&part.replace('/', "%"));
            }
        }
        name
    }
}

impl FromStr for HubSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = |why| SpecError { text: text.to_owned(), why };
        let rest = text.strip_prefix(PREFIX).ok_or_else(|| wrong("does not begin with hf:"))?;
        let (rest, file) = match rest.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (rest, None),
        };
        let (repo, revision) = match rest.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (rest, None),
        };
        if !is_repository(repo) {
            return Err(wrong("names no repository of the form owner/name"));
        }
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return Err(wrong("names no branch, tag or commit behind the @"));
        }
        if file.is_some_and(|file| !is_path(file)) {
            return Err(wrong("names no file of a repository behind the last colon"));
        }
        if file.is_some_and(|file| !file.ends_with(".gguf")) {
            return Err(wrong("names a file that is no .gguf file"));
        }
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Ok(Self { repo: repo.to_owned(), revision: owned(revision), file: owned(file) })
    }
}

impl fmt::Display for HubSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.repo)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match &self.file {
            Some(file) => write!(f, ":{file}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        let of = |repo: &str, revision: Option<&str>, file: Option<&str>| HubSpec {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        };
        for (text, spec, folder) in [
            ("hf:a/b-1.5", of("a/b-1.5", None, None), "a--b-1.5"),
            ("hf:a/b@v1", of("a/b", Some("v1"), None), "a--b@v1"),
            ("hf:a/b@refs/pr/1", of("a/b", Some("refs/pr/1"), None), "a--b@refs%pr%1"),
            ("hf:a/b:Q4/x.gguf", of("a/b", None, Some("Q4/x.gguf")), "a--b%%Q4%x.gguf"),
            ("hf:a/b@c0:x.gguf", of("a/b", Some("c0"), Some("x.gguf")), "a--b@c0%%x.gguf"),
        ] {
            assert_eq!(text.parse(), Ok(spec.clone()), "{text}");
            assert_eq!(spec.to_string(), text);
            assert_eq!(spec.folder(), folder);
        }
    }

    #[test]
    fn what_leads_elsewhere_is_refused_with_the_form() {
        for text in [
            "hf:",
            "hf:a",
            "hf:/b",
            "hf:a/",
            "hf:a/b/c",
            "hf:../b",
            "hf:a/..",
            "hf:a--b/c",
            "hf:-a/b",
            "hf:a/b@",
            "hf:a/b@../x",
            "hf:a/b@-x",
            "hf:a/b:",
            "hf:a/b:../x.gguf",
            "hf:a/b:/x.gguf",
            "hf:a/b:x.txt",
            "hf:a/b?x",
            "hf:a b/c",
            "a/b",
            "hf:a/b:x\n.gguf",
        ] {
            let said = text.parse::<HubSpec>().unwrap_err().to_string();
            assert!(said.contains("hf:owner/name"), "{text}: {said}");
        }
    }
}
