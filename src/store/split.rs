//! Models in several GGUF files: which shards there are, and that they belong together.

use std::path::{Path, PathBuf};

use super::gguf::{GgufError, GgufProblem};
use super::metadata::Metadata;

/// What a shard says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// From 0.
    number: u32,
    /// Shards of the model.
    pub count: u32,
    /// Tensors of all shards together.
    pub tensors: u64,
}

impl Split {
    /// What a file's metadata says; None where it is a whole model.
    pub(super) fn of(metadata: &Metadata) -> Result<Option<Self>, GgufError> {
        let key = "split.count";
        if !metadata.contains(key) || metadata.u32(key)? <= 1 {
            return Ok(None);
        }
        let count = metadata.u32(key)?;
        let number = metadata.u32("split.no")?;
        if number >= count {
            let why = format!("its split.no is {number} and its split.count {count}");
            return Err(wrong(metadata.path(), why));
        }
        Ok(Some(Self { number, count, tensors: metadata.u64("split.tensors.count")? }))
    }

    /// The files of all shards, in their order: the names differ in their number only.
    pub(super) fn paths(
        self,
        of: &Path,
    ) -> Result<impl Iterator<Item = PathBuf> + use<>, GgufError> {
        let Self { number, count, .. } = self;
        let ending = move |number: u32| format!("-{:05}-of-{count:05}.gguf", number + 1);
        let name = of.file_name().map(|name| name.to_string_lossy().into_owned());
        let begin = name.as_deref().and_then(|name| name.strip_suffix(&ending(number)));
        let Some(begin) = begin.map(str::to_owned) else {
            let why = format!(
                "it says that it is shard {} of {count}, so its name should end in {}",
                number + 1,
                ending(number)
            );
            return Err(wrong(of, why));
        };
        let of = of.to_owned();
        Ok((0..count).map(move |number| of.with_file_name(begin.clone() + &ending(number))))
    }

    /// Refuses a file that is not shard `number` of the same model.
    pub(super) fn check(self, metadata: &Metadata, number: u32) -> Result<(), GgufError> {
        match Self::of(metadata)? {
            Some(found) if found == (Self { number, ..self }) => Ok(()),
            found => {
                let says = match found {
                    None => "is a whole model".to_owned(),
                    Some(found) => format!(
                        "is shard {} of {} with {} tensors in all",
                        found.number + 1,
                        found.count,
                        found.tensors
                    ),
                };
                let why = format!(
                    "it says that it {says}, and shard {} of {} with {} tensors in all should stand here",
                    number + 1,
                    self.count,
                    self.tensors
                );
                Err(wrong(metadata.path(), why))
            }
        }
    }
}

/// What is wrong with a shard.
pub(super) fn wrong(path: &Path, why: String) -> GgufError {
    GgufError { path: path.to_owned(), problem: GgufProblem::Shard { why } }
}
