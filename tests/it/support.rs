//! What several test modules need: where the fixtures and the default model are.

use std::path::{Path, PathBuf};

/// The folder of Cargo.toml.
pub fn crate_root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file of `tests/data`.
pub fn data(path: impl AsRef<Path>) -> PathBuf {
    crate_root().join("tests").join("data").join(path)
}

/// The folder with public data sets, which a clone need not have: `$UNSAY_SHARED`, or `shared`
/// beside the crate.
pub fn shared() -> Option<PathBuf> {
    let folder = match std::env::var_os("UNSAY_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => crate_root().join("..").join("shared"),
    };
    folder.is_dir().then_some(folder)
}

/// The file of the default model.
///
/// # Panics
/// When it has not been pulled.
pub fn default_model() -> PathBuf {
    let cache = unsay::store::Cache::locate().expect("a cache folder");
    let manifests = unsay::store::manifests(&cache).expect("manifests that can be read");
    let manifest = &manifests["smollm2-135m-instruct"];
    let file = unsay::store::Package::of_manifest(manifest, None, &cache).expect("it").entry();
    assert!(
        file.is_file(),
        "these tests need the default model, which is not at {}; run `make model`",
        file.display()
    );
    file
}

/// The content of a .gz file.
pub fn gunzip(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
    bytes
}

/// A small GGUF file, byte by byte: for damaged ones and for tokenizers that no model here has.
pub struct GgufBuilder {
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
    alignment: usize,
    pub version: u32,
}

impl Default for GgufBuilder {
    fn default() -> Self {
        let (entries, tensors, data) = Default::default();
        Self { entries, tensors, data, alignment: 32, version: 3 }
    }
}

impl GgufBuilder {
    pub const U32: u32 = 4;
    pub const I32: u32 = 5;
    pub const F32: u32 = 6;
    pub const BOOL: u32 = 7;
    pub const STRING: u32 = 8;
    pub const ARRAY: u32 = 9;
    pub const U64: u32 = 10;

    /// A string with its length before it.
    pub fn text(text: &str) -> Vec<u8> {
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes
    }

    /// An entry whose value is given as bytes.
    pub fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        let mut entry = Self::text(key);
        entry.extend(kind.to_le_bytes());
        entry.extend(value);
        self.entries.push(entry);
        self
    }

    pub fn string(self, key: &str, value: &str) -> Self {
        self.raw(key, Self::STRING, &Self::text(value))
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, Self::U32, &value.to_le_bytes())
    }

    pub fn bool(self, key: &str, value: bool) -> Self {
        self.raw(key, Self::BOOL, &[u8::from(value)])
    }

    pub fn strings<'a>(self, key: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let values: Vec<_> = values.into_iter().map(Self::text).collect();
        self.array(key, Self::STRING, &values)
    }

    pub fn i32s(self, key: &str, values: impl IntoIterator<Item = i32>) -> Self {
        let values: Vec<_> = values.into_iter().map(|n| n.to_le_bytes().to_vec()).collect();
        self.array(key, Self::I32, &values)
    }

    pub fn f32s(self, key: &str, values: impl IntoIterator<Item = f32>) -> Self {
        let values: Vec<_> = values.into_iter().map(|x| x.to_le_bytes().to_vec()).collect();
        self.array(key, Self::F32, &values)
    }

    pub fn array(self, key: &str, kind: u32, elements: &[Vec<u8>]) -> Self {
        let mut value = kind.to_le_bytes().to_vec();
        value.extend((elements.len() as u64).to_le_bytes());
        value.extend(elements.concat());
        self.raw(key, Self::ARRAY, &value)
    }

    /// Sets `general.alignment`, and lays the tensors that follow accordingly.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = (alignment as usize).max(1);
        self.u32("general.alignment", alignment)
    }

    /// A tensor; `shape` is outermost first.
    pub fn tensor(mut self, name: &str, kind: u32, shape: &[u64], bytes: &[u8]) -> Self {
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        let offset = self.data.len() as u64;
        self.data.extend(bytes);
        self.tensor_at(name, kind, shape, offset)
    }

    /// The description of a tensor that lies at any offset of the data.
    pub fn tensor_at(mut self, name: &str, kind: u32, shape: &[u64], offset: u64) -> Self {
        let mut tensor = Self::text(name);
        tensor.extend((shape.len() as u32).to_le_bytes());
        tensor.extend(shape.iter().rev().flat_map(|n| n.to_le_bytes()));
        tensor.extend(kind.to_le_bytes());
        tensor.extend(offset.to_le_bytes());
        self.tensors.push(tensor);
        self
    }

    pub fn build(&self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.entries.len() as u64).to_le_bytes());
        bytes.extend(self.entries.concat());
        bytes.extend(self.tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend(&self.data);
        bytes
    }
}
