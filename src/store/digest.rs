//! SHA-256 of files, remembered beside them so that a large file is hashed once and not at every
//! start.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::error::StoreError;

/// A running SHA-256 with the number of bytes that went in.
#[derive(Clone)]
pub(super) struct Hasher {
    sha: Sha256,
    pub(super) bytes: u64,
}

impl Hasher {
    pub(super) fn new() -> Self {
        Self { sha: Sha256::new(), bytes: 0 }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// The digest as 64 lower-case hexadecimal digits.
    pub(super) fn finish(self) -> String {
        hexadecimal(&self.sha.finalize())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What Git calls a file of so many bytes: the SHA-1 of its length and its content.
pub(super) fn git_digest_of(path: &Path, bytes: u64) -> Result<String, StoreError> {
    let mut file = File::open(path).map_err(|e| StoreError::io("open", path, e))?;
    let mut sha = Sha1::new();
    sha.update(format!("blob {bytes}\0"));
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(|e| StoreError::io("read", path, e))? {
            0 => return Ok(hexadecimal(&sha.finalize())),
            count => sha.update(&buffer[..count]),
        }
    }
}

/// SHA-256 of a file, as 64 lower-case hexadecimal digits.
pub fn sha256_of(path: &Path) -> Result<String, StoreError> {
    let mut file = File::open(path).map_err(|e| StoreError::io("open", path, e))?;
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(|e| StoreError::io("read", path, e))?;
        if count == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..count]);
    }
}

/// SHA-256 of a text, as 64 lower-case hexadecimal digits.
pub fn sha256_of_text(text: &str) -> String {
    let mut hasher = Hasher::new();
    hasher.update(text.as_bytes());
    hasher.finish()
}

/// Where the digest of `file` is remembered.
fn side_file(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".sha256");
    file.with_file_name(name)
}

/// What must be unchanged for a remembered digest to hold: size and time of the last change.
fn stamp(file: &Path) -> std::io::Result<String> {
    let facts = file.metadata()?;
    let changed = facts.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} {}", facts.len(), changed.as_nanos()))
}

/// Hashes a file and remembers its digest, unless the file changed meanwhile.
pub(super) fn hash_and_remember(file: &Path) -> Result<String, StoreError> {
    let before = stamp(file).ok();
    let sha256 = sha256_of(file)?;
    if before.is_some() && before == stamp(file).ok() {
        remember(file, &sha256);
    }
    Ok(sha256)
}

/// Remembers the digest of a file. A folder that cannot be written to only means that the file is
/// hashed again next time.
pub(super) fn remember(file: &Path, sha256: &str) {
    if let Ok(stamp) = stamp(file) {
        let _ = std::fs::write(side_file(file), format!("{sha256} {stamp}\n"));
    }
}

/// The remembered digest of a file, if the file has not changed since.
pub(super) fn remembered(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(side_file(file)).ok()?;
    let (sha256, stamped) = text.trim_end().split_once(' ')?;
    (stamp(file).ok()? == stamped).then(|| sha256.to_owned())
}
