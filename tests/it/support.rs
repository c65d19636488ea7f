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
    let file = cache.model_folder("smollm2-135m-instruct").join("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(
        file.is_file(),
        "these tests need the default model, which is not at {}; run `make model`",
        file.display()
    );
    file
}
