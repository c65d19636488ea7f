//! A reader of GGUF files, versions 2 and 3, little-endian.
//!
//! The file is mapped and stays where it is: metadata strings and arrays are views, tensors are
//! views. Every count, length, shape and offset is checked against the size of the file before
//! anything is allocated for it, so that a damaged or hostile file gives an error and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::StoreError;
use super::mapping::map_file;
use super::metadata::{Metadata, read_value};
use super::split::{self, Split};
use super::weights::{Tensor, WeightType};

/// Where tensor data is aligned to when the file does not say.
const DEFAULT_ALIGNMENT: u64 = 32;
/// Most dimensions of a tensor in the format.
const MAX_DIMENSIONS: u32 = 4;
/// Fewest bytes that one metadata entry takes: an empty key, a type, a one-byte value.
const MIN_ENTRY_BYTES: u64 = 8 + 4 + 1;
/// Fewest bytes that the description of one tensor takes.
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// What is wrong with a GGUF file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct GgufError {
    pub path: PathBuf,
    pub problem: GgufProblem,
}

/// The kinds of damage and of mismatch that a GGUF file can have.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum GgufProblem {
    #[error("this is not a GGUF file (it begins with {found:?}); give a file that ends in .gguf")]
    NotGguf { found: Vec<u8> },
    #[error("GGUF version {version} is not read here, only 2 and 3; convert the model again")]
    Version { version: u32 },
    #[error("this GGUF file is big-endian, and only little-endian ones are read; convert it again")]
    BigEndian,
    #[error(
        "{field} at byte {offset} needs {needs} bytes and {left} are left: the file is cut short or \
         damaged; fetch it again"
    )]
    Truncated { field: String, offset: u64, needs: u64, left: u64 },
    #[error(
        "{field} is {count}, more than a file of this size can hold ({most}): it is damaged; fetch it again"
    )]
    TooMany { field: String, count: u64, most: u64 },
    #[error("{field} is not UTF-8: the file is damaged; fetch it again")]
    NotUtf8 { field: String },
    #[error("{field} occurs twice; fetch the file again or convert the model again")]
    Duplicate { field: String },
    #[error("{field}: there is no value type {code}; the file is damaged or of a later format")]
    UnknownValueType { field: String, code: u32 },
    #[error("{field}: {value} is not a truth value (0 or 1): the file is damaged; fetch it again")]
    NotBool { field: String, value: u8 },
    #[error("{field}: arrays within arrays deeper than {most} are not read")]
    TooDeep { field: String, most: u32 },
    #[error("metadata `{key}` is missing; convert the model with a converter that writes it")]
    Missing { key: String },
    #[error("metadata `{key}` is {found} where {wanted} is wanted; convert the model again")]
    WrongType { key: String, wanted: &'static str, found: String },
    #[error(
        "general.alignment is {alignment}, which is not a power of two; convert the model again"
    )]
    Alignment { alignment: u64 },
    #[error(
        "tensor `{tensor}` is stored as {kind}, which is not supported; take a file in F32, F16, \
         BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 or Q2_K to Q6_K"
    )]
    UnknownTensorType { tensor: String, kind: String },
    #[error(
        "tensor `{tensor}` has the shape {shape:?} (outermost first): {why}; fetch the file again"
    )]
    Shape { tensor: String, shape: Vec<u64>, why: &'static str },
    #[error(
        "tensor `{tensor}` lies at byte {offset} of the data, which is not a multiple of the \
         alignment {alignment}: the file is damaged; fetch it again"
    )]
    Misaligned { tensor: String, offset: u64, alignment: u64 },
    #[error(
        "tensor `{tensor}` ({bytes} bytes at byte {offset} of the data) reaches beyond the end of \
         the file: it is cut short or damaged; fetch it again"
    )]
    OutOfFile { tensor: String, offset: u64, bytes: u64 },
    #[error("tensors `{first}` and `{second}` overlap: the file is damaged; fetch it again")]
    Overlap { first: String, second: String },
    #[error("{why}; fetch all shards of the model, of one version and unrenamed, into one folder")]
    Shard { why: String },
}

/// A mapped GGUF model, of one file or of several shards: typed metadata and tensors.
#[derive(Clone)]
pub struct Gguf {
    path: PathBuf,
    version: u32,
    metadata: Metadata,
    tensors: BTreeMap<String, TensorPlace>,
    /// One for each file.
    maps: Vec<Arc<memmap2::Mmap>>,
}

/// A tensor's description, checked: its bytes are `start..start + len` of the file.
#[derive(Clone)]
struct TensorPlace {
    /// Which mapping it lies in.
    map: usize,
    kind: WeightType,
    /// Outermost first.
    shape: Vec<usize>,
    start: usize,
    len: usize,
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gguf")
            .field("path", &self.path)
            .field("version", &self.version)
            .field("tensors", &self.tensors.len())
            .finish_non_exhaustive()
    }
}

impl Gguf {
    /// Maps a file and checks its whole structure. Tensor data is not read. Where the file is a
    /// shard, all shards of its model are mapped; they lie in one folder.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let named = Self::open_one(path)?;
        match Split::of(&named.metadata)? {
            None => Ok(named),
            Some(split) => named.joined(split),
        }
    }

    /// Maps one file, whether or not it is a whole model.
    fn open_one(path: &Path) -> Result<Self, StoreError> {
        let map = map_file(path)?;
        let failed = |problem| GgufError { path: path.to_owned(), problem };
        let (version, entries, tensors) = read_structure(&map).map_err(failed)?;
        let metadata = Metadata::new(path.to_owned(), Arc::clone(&map), entries);
        Ok(Self { path: path.to_owned(), version, metadata, tensors, maps: vec![map] })
    }

    /// All shards of the model that this file is one of. Metadata are those of the first.
    fn joined(self, split: Split) -> Result<Self, StoreError> {
        let mut whole: Option<Self> = None;
        for (number, path) in (0..).zip(split.paths(&self.path)?) {
            if !path.try_exists().unwrap_or(true) {
                let why = format!("shard {} of {} is missing", number + 1, split.count);
                return Err(split::wrong(&path, why).into());
            }
            let shard = if path == self.path { self.clone() } else { Self::open_one(&path)? };
            split.check(&shard.metadata, number)?;
            match &mut whole {
                None => whole = Some(Self { path: self.path.clone(), ..shard }),
                Some(whole) => whole.take_in(shard)?,
            }
        }
        let whole = whole.unwrap_or(self);
        let found = whole.tensors.len() as u64;
        if found != split.tensors {
            let why = format!(
                "the {} shards hold {found} tensors, and split.tensors.count says {}",
                split.count, split.tensors
            );
            return Err(split::wrong(&whole.path, why).into());
        }
        Ok(whole)
    }

    /// Adds the tensors of another shard.
    fn take_in(&mut self, shard: Self) -> Result<(), GgufError> {
        let map = self.maps.len();
        for (name, place) in shard.tensors {
            if self.tensors.contains_key(&name) {
                let problem =
                    GgufProblem::Duplicate { field: format!("tensor `{name}` of several shards") };
                return Err(GgufError { path: shard.path, problem });
            }
            self.tensors.insert(name, TensorPlace { map, ..place });
        }
        self.maps.extend(shard.maps);
        Ok(())
    }

    /// The file; of several shards, the one that was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of all shards in their order, or the one file.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, GgufError> {
        match Split::of(&self.metadata)? {
            None => Ok(vec![self.path.clone()]),
            // Metadata are those of the first shard, wherever the named one stands.
            Some(split) => Ok(split.paths(self.metadata.path())?.collect()),
        }
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The key-value part of the file.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// A tensor by name, as a view of the mapping. Shapes are outermost first.
    pub fn tensor(&self, name: &str) -> Option<Tensor> {
        let place = self.tensors.get(name)?;
        Some(Tensor::new(
            name.to_owned(),
            place.kind,
            place.shape.clone(),
            Arc::clone(&self.maps[place.map]),
            place.start,
            place.len,
        ))
    }

    /// The names of all tensors, sorted.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Bytes of all mappings: the size of the file or of all shards.
    pub fn bytes_mapped(&self) -> u64 {
        self.maps.iter().map(|map| map.len() as u64).sum()
    }
}

type Structure = (u32, BTreeMap<String, super::metadata::Value>, BTreeMap<String, TensorPlace>);

/// Reads everything before the tensor data.
fn read_structure(bytes: &[u8]) -> Result<Structure, GgufProblem> {
    let mut cursor = Cursor::new(bytes);
    let version = read_version(&mut cursor)?;
    let tensor_count = cursor.u64("the number of tensors")?;
    let entry_count = cursor.u64("the number of metadata entries")?;
    let (left, at_least) = (cursor.left(), |count: u64, each: u64| count.saturating_mul(each));
    if at_least(entry_count, MIN_ENTRY_BYTES) > left {
        let field = "the number of metadata entries".to_owned();
        return Err(GgufProblem::TooMany {
            field,
            count: entry_count,
            most: left / MIN_ENTRY_BYTES,
        });
    }
    let mut entries = BTreeMap::new();
    for index in 0..entry_count {
        let key = cursor.string(|| format!("key {index} of the metadata"))?.to_owned();
        let value = read_value(&mut cursor, &key)?;
        if entries.contains_key(&key) {
            return Err(GgufProblem::Duplicate { field: format!("metadata `{key}`") });
        }
        entries.insert(key, value);
    }
    let left = cursor.left();
    if at_least(tensor_count, MIN_TENSOR_BYTES) > left {
        let field = "the number of tensors".to_owned();
        return Err(GgufProblem::TooMany {
            field,
            count: tensor_count,
            most: left / MIN_TENSOR_BYTES,
        });
    }
    let alignment = alignment(&entries)?;
    let described = (0..tensor_count)
        .map(|index| Described::read(&mut cursor, index, alignment))
        .collect::<Result<Vec<_>, _>>()?;
    let data_start = cursor.position().next_multiple_of(alignment);
    Ok((version, entries, place_tensors(described, data_start, bytes.len() as u64)?))
}

/// Reads magic and version.
fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufProblem> {
    let magic = cursor.bytes(4, || "the magic".to_owned());
    match magic {
        Ok(b"GGUF") => {}
        Ok(found) => return Err(GgufProblem::NotGguf { found: found.to_vec() }),
        Err(problem) => return Err(problem),
    }
    match cursor.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        version if (1..=3).contains(&version.swap_bytes()) => Err(GgufProblem::BigEndian),
        version => Err(GgufProblem::Version { version }),
    }
}

fn alignment(entries: &BTreeMap<String, super::metadata::Value>) -> Result<u64, GgufProblem> {
    let key = "general.alignment";
    let Some(value) = entries.get(key) else { return Ok(DEFAULT_ALIGNMENT) };
    let alignment = value.as_u64().ok_or_else(|| GgufProblem::WrongType {
        key: key.to_owned(),
        wanted: "an unsigned integer",
        found: value.describe(),
    })?;
    // The upper limit only keeps the arithmetic on offsets far from overflow.
    if !alignment.is_power_of_two() || alignment > 1 << 30 {
        return Err(GgufProblem::Alignment { alignment });
    }
    Ok(alignment)
}

/// A tensor's description before it is held against the size of the file.
struct Described {
    name: String,
    kind: WeightType,
    shape: Vec<usize>,
    /// From the start of the data.
    offset: u64,
    bytes: u64,
}

impl Described {
    fn read(cursor: &mut Cursor<'_>, index: u64, alignment: u64) -> Result<Self, GgufProblem> {
        let name = cursor.string(|| format!("the name of tensor {index}"))?.to_owned();
        let dimensions = cursor.u32(&format!("the dimensions of tensor `{name}`"))?;
        if dimensions == 0 || dimensions > MAX_DIMENSIONS {
            let field = format!("the number of dimensions of tensor `{name}`");
            let (count, most) = (u64::from(dimensions), u64::from(MAX_DIMENSIONS));
            return Err(GgufProblem::TooMany { field, count, most });
        }
        let mut shape = Vec::with_capacity(dimensions as usize);
        for _ in 0..dimensions {
            shape.push(cursor.u64(&format!("the shape of tensor `{name}`"))?);
        }
        shape.reverse();
        let code = cursor.u32(&format!("the type of tensor `{name}`"))?;
        let offset = cursor.u64(&format!("the offset of tensor `{name}`"))?;
        let Some(kind) = weight_type(code) else {
            let kind = format!("{} (type {code})", type_name(code));
            return Err(GgufProblem::UnknownTensorType { tensor: name, kind });
        };
        if offset % alignment != 0 {
            return Err(GgufProblem::Misaligned { tensor: name, offset, alignment });
        }
        let bytes = match byte_length(kind, &shape) {
            Ok(bytes) => bytes,
            Err(why) => return Err(GgufProblem::Shape { tensor: name, shape, why }),
        };
        // No dimension exceeds the product, which fits.
        let shape = shape.iter().map(|&n| n as usize).collect();
        Ok(Self { name, kind, shape, offset, bytes })
    }
}

/// Bytes that a tensor of this kind and shape (outermost first) takes.
fn byte_length(kind: WeightType, shape: &[u64]) -> Result<u64, &'static str> {
    if shape.contains(&0) {
        return Err("a dimension is 0");
    }
    let (block_len, block_bytes) = (kind.block_len() as u64, kind.block_bytes() as u64);
    let row = shape.last().copied().unwrap_or(1);
    if row % block_len != 0 {
        return Err("a row is not a whole number of blocks of its type");
    }
    let weights = shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n));
    let bytes = weights.and_then(|n| (n / block_len).checked_mul(block_bytes));
    bytes.filter(|&n| n <= isize::MAX as u64).ok_or("it is larger than memory can be")
}

/// Holds every tensor against the size of the file and against its neighbours.
fn place_tensors(
    mut described: Vec<Described>,
    data_start: u64,
    file_len: u64,
) -> Result<BTreeMap<String, TensorPlace>, GgufProblem> {
    described.sort_by_key(|tensor| tensor.offset);
    for pair in described.windows(2) {
        let (first, second) = (&pair[0], &pair[1]);
        if first.offset.saturating_add(first.bytes) > second.offset {
            let (first, second) = (first.name.clone(), second.name.clone());
            return Err(GgufProblem::Overlap { first, second });
        }
    }
    let mut placed = BTreeMap::new();
    for Described { name, kind, shape, offset, bytes } in described {
        let start = data_start.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(bytes));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(GgufProblem::OutOfFile { tensor: name, offset, bytes });
        };
        if end > file_len {
            return Err(GgufProblem::OutOfFile { tensor: name, offset, bytes });
        }
        if placed.contains_key(&name) {
            return Err(GgufProblem::Duplicate { field: format!("tensor `{name}`") });
        }
        // Both are inside the mapping, whose length is a usize.
        let (start, len) = (start as usize, bytes as usize);
        placed.insert(name, TensorPlace { map: 0, kind, shape, start, len });
    }
    Ok(placed)
}

/// The kinds that are read, by the format's code.
fn weight_type(code: u32) -> Option<WeightType> {
    Some(match code {
        0 => WeightType::F32,
        1 => WeightType::F16,
        2 => WeightType::Q4_0,
        3 => WeightType::Q4_1,
        6 => WeightType::Q5_0,
        7 => WeightType::Q5_1,
        8 => WeightType::Q8_0,
        10 => WeightType::Q2_K,
        11 => WeightType::Q3_K,
        12 => WeightType::Q4_K,
        13 => WeightType::Q5_K,
        14 => WeightType::Q6_K,
        30 => WeightType::BF16,
        _ => return None,
    })
}

/// What the format calls the kinds that are not read, for the error message.
fn type_name(code: u32) -> &'static str {
    match code {
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => "an unknown type",
    }
}
