//! Where files come from and how they are read: manifests, sources, digests, the cache folder,
//! GGUF (a reader of our own) and safetensors (its crate). Uses no other room.

mod cache;
mod cursor;
mod error;
mod gguf;
mod mapping;
mod metadata;
mod weights;

pub use cache::Cache;
pub use error::StoreError;
pub use gguf::{Gguf, GgufError, GgufProblem};
pub use metadata::Metadata;
pub use weights::{Tensor, WeightType};
