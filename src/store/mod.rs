//! Where files come from and how they are read: manifests, sources, digests, the cache folder,
//! GGUF (a reader of our own) and safetensors (its crate). Uses no other room.

mod adapter;
mod cache;
mod catalogue;
mod cursor;
mod digest;
mod error;
mod gguf;
mod hub;
mod identity;
mod manifest;
mod mapping;
mod metadata;
mod open;
mod package;
mod pull;
mod repository;
mod safetensors;
mod spec;
mod split;
mod transfer;
mod weights;
mod wheel;
mod workshop;

pub use adapter::AdapterFiles;
pub use cache::Cache;
pub use catalogue::manifests;
pub use digest::{sha256_of, sha256_of_text};
pub use error::StoreError;
pub use gguf::{Gguf, GgufError, GgufProblem};
pub use manifest::{
    Manifest, ModelFile, Role, Shape, ShapeFamily, Source, Variant, VerifierFormat,
};
pub use metadata::Metadata;
pub use open::{ModelFiles, named, open};
pub use package::{Package, pulled_from_hub};
pub use pull::{Progress, Pulled, pull, verify};
pub use safetensors::{SafetensorsModel, read_json};
pub use spec::{HubSpec, SpecError};
pub use weights::{Tensor, WeightType};
