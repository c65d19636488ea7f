//! The private folder of a run, and its removal whatever a program put into it.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::outcome::SandboxError;

/// A fresh folder that only this user can enter; removed when dropped.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Makes a folder with a name of its own under `root`.
    pub fn create(root: &Path) -> Result<WorkFolder, SandboxError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let process = std::process::id();
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("unsay-run-{process}-{count}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(WorkFolder { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => {
                    return Err(SandboxError::WorkFolder {
                        path: path.display().to_string(),
                        source,
                    });
                }
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it and says why if that fails.
    pub fn remove(self) -> Result<(), SandboxError> {
        remove(&self.path).map_err(|source| SandboxError::WorkFolder {
            path: self.path.display().to_string(),
            source,
        })
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Reported by `remove`; here there is nobody to tell.
        let _ = remove(&self.path);
    }
}

/// Removes a folder with all that is in it, however deep: a folder's children are lifted to the
/// top before it goes, so no path grows longer than two names and no recursion is needed.
pub fn remove(top: &Path) -> io::Result<()> {
    let mut lifted: u64 = 0;
    loop {
        let mut folders = Vec::new();
        let entries = match fs::read_dir(top) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        if folders.is_empty() {
            return match fs::remove_dir(top) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                done => done,
            };
        }
        for folder in folders {
            open_up(&folder)?;
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    lift(&entry.path(), top, &mut lifted)?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            fs::remove_dir(&folder)?;
        }
    }
}

/// Makes a folder ours to empty and to move, whatever mode it was made with.
fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

/// Moves a folder to a free name directly under `top`.
fn lift(folder: &Path, top: &Path, lifted: &mut u64) -> io::Result<()> {
    open_up(folder)?;
    loop {
        *lifted += 1;
        let target = top.join(format!(".lifted-{lifted}"));
        // A name that the program took itself is passed over.
        match fs::symlink_metadata(&target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fs::rename(folder, target);
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_deeper_than_any_path_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let top = WorkFolder::create(root.path()).unwrap();
        // Built from the inside out, since a path of this depth cannot be named.
        let spare = root.path().join("spare");
        fs::create_dir(&spare).unwrap();
        let (mut inner, mut outer) = (spare.join("a"), spare.join("b"));
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("file"), "x").unwrap();
        for _ in 0..60 {
            fs::create_dir(&outer).unwrap();
            fs::rename(&inner, outer.join("d".repeat(100))).unwrap();
            std::mem::swap(&mut inner, &mut outer);
        }
        fs::rename(&inner, top.path().join(".lifted-1")).unwrap();
        fs::DirBuilder::new().mode(0o0).create(top.path().join("closed")).unwrap();
        std::os::unix::fs::symlink(root.path(), top.path().join("link")).unwrap();
        fs::remove_dir(&spare).unwrap();
        let path = top.path().to_owned();
        top.remove().unwrap();
        assert!(!path.exists());
        assert!(root.path().exists());
    }

    #[test]
    fn folders_have_names_of_their_own_and_go_when_dropped() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) =
            (WorkFolder::create(root.path()).unwrap(), WorkFolder::create(root.path()).unwrap());
        assert_ne!(a.path(), b.path());
        drop((a, b));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
