//! Where files come from and how they are read: manifests, sources, digests, the cache folder,
//! GGUF (a reader of our own) and safetensors (its crate). Uses no other room.

mod weights;

pub use weights::{Tensor, WeightType};
