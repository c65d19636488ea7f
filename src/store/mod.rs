//! Where files come from and how they are read: manifests, sources, digests, the cache folder,
//! GGUF (a reader of our own) and safetensors (its crate). Uses no other room.

mod adapter;
mod cache;
mod cursor;
mod digest;
mod error;
mod gguf;
mod identity;
mod manifest;
mod mapping;
mod metadata;
mod open;
mod pull;
mod safetensors;
mod sources;
mod split;
mod weights;

pub use adapter::AdapterFiles;
pub use cache::Cache;
pub use digest::{sha256_of, sha256_of_text};
pub use error::StoreError;
pub use gguf::{Gguf, GgufError, GgufProblem};
pub use manifest::{Manifest, Source, manifests};
pub use metadata::Metadata;
pub use open::{ModelFiles, open};
pub use pull::{Progress, Pulled, pull, verify};
pub use safetensors::{SafetensorsModel, read_json};
pub use weights::{Tensor, WeightType};
