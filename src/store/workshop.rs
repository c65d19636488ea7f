//! The folder that a pull works in, and the lock that lets one pull of a model run at a time.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::StoreError;
use super::pull::Progress;

/// Takes the lock of a model's folder, waiting if another process holds it.
pub(super) fn lock(
    path: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<File, StoreError> {
    let failed = |e| StoreError::io("lock", path, e);
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => progress(Progress::Waiting),
        Err(std::fs::TryLockError::Error(e)) => return Err(failed(e)),
    }
    file.lock().map_err(failed)?;
    Ok(file)
}

/// The folder that a pull works in. Only parts of files outlive a pull that did not end well.
pub(super) struct Workshop(pub(super) PathBuf);

impl Workshop {
    /// Makes the folder, without what a killed pull may have left in it beside parts. The lock is held.
    pub(super) fn new(path: PathBuf) -> Result<Self, StoreError> {
        let workshop = Self(path);
        workshop.clear();
        let parts = workshop.parts();
        std::fs::create_dir_all(&parts).map_err(|e| StoreError::io("create", &parts, e))?;
        Ok(workshop)
    }

    /// Where parts of the hub's files lie.
    pub(super) fn parts(&self) -> PathBuf {
        self.0.join("parts")
    }

    fn clear(&self) {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name() != "parts") {
            let path = entry.path();
            let _ = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        self.clear();
        // These go only where they are empty.
        let _ = std::fs::remove_dir(self.parts());
        let _ = std::fs::remove_dir(&self.0);
    }
}
