//! Model folders as the hub lays them out: config.json and weights in safetensors, one file or
//! shards with an index. Mapped; the format itself is read by the `safetensors` crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::error::StoreError;
use super::mapping::map_file;
use super::weights::{Tensor, WeightType};

pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const SINGLE: &str = "model.safetensors";
/// Bytes of the number that a safetensors file begins with.
const LENGTH_BYTES: usize = 8;

/// A model folder with its weights mapped.
#[derive(Clone)]
pub struct SafetensorsModel {
    folder: PathBuf,
    config: Value,
    generation_config: Option<Value>,
    tensors: BTreeMap<String, Tensor>,
    bytes_mapped: u64,
}

impl std::fmt::Debug for SafetensorsModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SafetensorsModel")
            .field("folder", &self.folder)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl SafetensorsModel {
    /// Opens a folder with config.json and either model.safetensors, shards with
    /// model.safetensors.index.json, or one other .safetensors file.
    ///
    /// Weights are F32, F16 or BF16; other floating-point types are refused by name. Integer and
    /// truth-value tensors (position ids and the like, which are not weights) are left out.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let config = read_json(&folder.join("config.json"))?;
        let generation = folder.join("generation_config.json");
        let generation_config =
            if generation.is_file() { Some(read_json(&generation)?) } else { None };
        let mut model = Self {
            folder: folder.to_owned(),
            config,
            generation_config,
            tensors: BTreeMap::new(),
            bytes_mapped: 0,
        };
        if folder.join(SINGLE).is_file() {
            model.add_file(&folder.join(SINGLE))?;
        } else if folder.join(INDEX).is_file() {
            model.add_shards(&folder.join(INDEX))?;
        } else {
            model.add_file(&only_weights_file(folder)?)?;
        }
        Ok(model)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// config.json.
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// generation_config.json, where there is one.
    pub fn generation_config(&self) -> Option<&Value> {
        self.generation_config.as_ref()
    }

    /// A tensor by name, as a view of the mapping.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        self.tensors.get(name).cloned()
    }

    /// The names of all tensors, sorted.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of all mappings together.
    pub fn bytes_mapped(&self) -> u64 {
        self.bytes_mapped
    }

    /// Maps one file and takes in its tensors; answers with the names of those left out.
    fn add_file(&mut self, path: &Path) -> Result<BTreeSet<String>, StoreError> {
        let (left_out, bytes) = read_tensors(path, &mut self.tensors)?;
        self.bytes_mapped += bytes;
        Ok(left_out)
    }

    /// Takes in every shard that the index names, and sees that all tensors that it promises are
    /// there.
    fn add_shards(&mut self, index: &Path) -> Result<(), StoreError> {
        let wrong = |field: &str, why: String| StoreError::Json {
            path: index.to_owned(),
            field: field.to_owned(),
            why,
        };
        let json = read_json(index)?;
        let weights = json.get("weight_map").and_then(Value::as_object).ok_or_else(|| {
            wrong("weight_map", "is missing or not an object; fetch the index again".into())
        })?;
        let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, shard) in weights {
            // An index that names itself, or another index, ends here too.
            let is_shard = |s: &&str| is_file_name(s) && s.ends_with(".safetensors");
            let shard = shard.as_str().filter(is_shard).ok_or_else(|| {
                let why = format!(
                    "is {shard}, which is not the name of a file in this folder that ends in \
                     .safetensors; fetch the index again"
                );
                wrong(&format!("weight_map.{name}"), why)
            })?;
            shards.entry(shard).or_default().push(name);
        }
        for (shard, promised) in shards {
            let left_out = self.add_file(&self.folder.join(shard))?;
            for name in promised {
                if !self.tensors.contains_key(name) && !left_out.contains(name) {
                    let why = format!("{shard} does not hold this tensor; fetch the shards again");
                    return Err(wrong(&format!("weight_map.{name}"), why));
                }
            }
        }
        Ok(())
    }
}

/// Maps one file and adds its tensors to others; answers with the names of those left out, which hold
/// no weights, and with the bytes mapped.
pub(super) fn read_tensors(
    path: &Path,
    tensors: &mut BTreeMap<String, Tensor>,
) -> Result<(BTreeSet<String>, u64), StoreError> {
    let map = map_file(path)?;
    let damaged = |what: &str, why: String| StoreError::Safetensors {
        path: path.to_owned(),
        what: what.to_owned(),
        why: format!("{why}; fetch the file again"),
    };
    let (header, metadata) =
        SafeTensors::read_metadata(&map).map_err(|e| damaged("header", e.to_string()))?;
    let mut left_out = BTreeSet::new();
    for (name, info) in metadata.tensors() {
        let Some(kind) = weight_type(info.dtype) else {
            if is_weight(info.dtype) {
                return Err(StoreError::Safetensors {
                    path: path.to_owned(),
                    what: format!("tensor `{name}`"),
                    why: format!(
                        "is stored as {:?}, which is not supported; take a model in F32, F16 or BF16",
                        info.dtype
                    ),
                });
            }
            left_out.insert(name);
            continue;
        };
        let place = place(kind, &info.shape, info.data_offsets, LENGTH_BYTES + header, map.len())
            .ok_or_else(|| {
            damaged(&format!("tensor `{name}`"), "its offsets are wrong".into())
        })?;
        let map = Arc::clone(&map);
        let tensor = Tensor::new(name.clone(), kind, info.shape.clone(), map, place.0, place.1);
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(damaged(&format!("tensor `{name}`"), "is in two files".into()));
        }
    }
    Ok((left_out, map.len() as u64))
}

/// Start and length in the file of a tensor, if they are inside it and what its shape asks for.
fn place(
    kind: WeightType,
    shape: &[usize],
    (from, to): (usize, usize),
    data: usize,
    file: usize,
) -> Option<(usize, usize)> {
    let weights = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))?;
    let wanted = weights.checked_mul(kind.block_bytes())?;
    let len = to.checked_sub(from)?;
    let (start, end) = (data.checked_add(from)?, data.checked_add(to)?);
    (len == wanted && end <= file).then_some((start, len))
}

fn weight_type(dtype: Dtype) -> Option<WeightType> {
    match dtype {
        Dtype::F32 => Some(WeightType::F32),
        Dtype::F16 => Some(WeightType::F16),
        Dtype::BF16 => Some(WeightType::BF16),
        _ => None,
    }
}

/// Whether a type holds weights rather than indices and masks.
fn is_weight(dtype: Dtype) -> bool {
    !matches!(
        dtype,
        Dtype::BOOL
            | Dtype::U8
            | Dtype::I8
            | Dtype::U16
            | Dtype::I16
            | Dtype::U32
            | Dtype::I32
            | Dtype::U64
            | Dtype::I64
    )
}

/// The one .safetensors file of a folder that has neither of the usual names.
fn only_weights_file(folder: &Path) -> Result<PathBuf, StoreError> {
    let not_a_model = |why| StoreError::NotAModel { path: folder.to_owned(), why };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| StoreError::io("list", folder, e))? {
        let path = entry.map_err(|e| StoreError::io("list", folder, e))?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            found.push(path);
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(not_a_model("holds no .safetensors file; fetch the model's weights into it")),
        _ => Err(not_a_model(
            "holds several .safetensors files and no model.safetensors.index.json that says what \
             is in which; fetch the index",
        )),
    }
}

/// Whether a text names a file of the same folder, and nothing above or below it.
pub(super) fn is_file_name(text: &str) -> bool {
    let plain = |c: char| !matches!(c, '/' | '\\' | '\0');
    !text.is_empty() && text != "." && text != ".." && text.chars().all(plain)
}

/// Reads a JSON file.
pub fn read_json(path: &Path) -> Result<Value, StoreError> {
    let bytes = std::fs::read(path).map_err(|e| StoreError::io("read", path, e))?;
    serde_json::from_slice(&bytes).map_err(|e| StoreError::Json {
        path: path.to_owned(),
        field: format!("line {} column {}", e.line(), e.column()),
        why: format!("{e}; fetch the file again"),
    })
}
