//! An append-only file of JSON lines that survives being killed at any moment: a line is in it whole and
//! for good, or not at all. Uses no other room.
//!
//! Each line is written at once and synced before `append` returns. What a killed process left of its last
//! line is cut off when the file is opened again. A second process on the same file is refused, by a lock
//! that the system frees when its holder dies.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A journal opened for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines; a write that failed half-way is cut back to them.
    whole: u64,
}

/// What was in a journal when it was opened.
#[derive(Debug)]
pub struct Found<T> {
    /// Its lines in the order in which they were written.
    pub lines: Vec<T>,
    /// Bytes of a line that was not finished, and is cut off.
    pub torn: u64,
}

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{path} is in use by another process; wait for it, or name another folder")]
    InUse { path: PathBuf },
    #[error(
        "{path}, line {line}: {why}; the file was changed by something else, so nothing is added to it: \
         remove that line to have its work done again"
    )]
    Damaged { path: PathBuf, line: usize, why: String },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl Journal {
    /// Opens a journal, which is made where there is none, and reads what it holds.
    ///
    /// # Errors
    /// `InUse` while another process (or another `Journal` of this one) has it; `Damaged` where a whole
    /// line is no `T`.
    pub fn open<T: DeserializeOwned>(path: &Path) -> Result<(Self, Found<T>), JournalError> {
        let failed = |what| move |source| JournalError::Io { what, path: path.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(JournalError::InUse { path: path.to_owned() });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let (lines, whole, torn) = read_from(&mut file, path)?;
        if torn > 0 {
            file.set_len(whole).and_then(|()| file.sync_data()).map_err(failed("heal"))?;
        }
        file.seek(SeekFrom::Start(whole)).map_err(failed("read"))?;
        // The name of a new file is safe only when its folder is.
        if let Some(folder) = path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync"))?;
        }
        Ok((Self { path: path.to_owned(), file, whole }, Found { lines, torn }))
    }

    /// Adds a line. When this returns without an error, the line outlives the process and the machine's
    /// power; with an error, the file is as it was before.
    pub fn append(&mut self, line: &impl Serialize) -> Result<(), JournalError> {
        let failed = |source| JournalError::Io { what: "write", path: self.path.clone(), source };
        let mut text = serde_json::to_vec(line).map_err(|e| failed(e.into()))?;
        text.push(b'\n');
        match self.file.write_all(&text).and_then(|()| self.file.sync_data()) {
            Ok(()) => {
                self.whole += text.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Best effort: what stays is a torn line, which the next opening cuts off.
                let _ = self.file.set_len(self.whole);
                let _ = self.file.seek(SeekFrom::Start(self.whole));
                Err(failed(error))
            }
        }
    }
}

/// Reads a journal that may be in use: its whole lines.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Found<T>, JournalError> {
    let mut file = File::open(path).map_err(|source| JournalError::Io {
        what: "open",
        path: path.to_owned(),
        source,
    })?;
    let (lines, _, torn) = read_from(&mut file, path)?;
    Ok(Found { lines, torn })
}

/// The lines, the bytes that they take, and the bytes behind the last one.
fn read_from<T: DeserializeOwned>(
    file: &mut File,
    path: &Path,
) -> Result<(Vec<T>, u64, u64), JournalError> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|source| JournalError::Io {
        what: "read",
        path: path.to_owned(),
        source,
    })?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut lines = Vec::new();
    for (index, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = serde_json::from_slice(line).map_err(|error| JournalError::Damaged {
            path: path.to_owned(),
            line: index + 1,
            why: error.to_string(),
        })?;
        lines.push(line);
    }
    Ok((lines, whole as u64, (bytes.len() - whole) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<u32> {
        read(path).unwrap().lines
    }

    #[test]
    fn lines_are_kept_and_a_torn_one_is_cut_off_at_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (mut journal, found) = Journal::open::<u32>(&path).unwrap();
        assert_eq!((found.lines, found.torn), (vec![], 0));
        for n in [7, 1234, 56] {
            journal.append(&n).unwrap();
        }
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes, b"7\n1234\n56\n");
        // However many bytes of the last lines reached the file.
        for len in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let whole = [2, 7, 10].iter().filter(|end| **end <= len).count();
            let (mut journal, found) = Journal::open::<u32>(&path).unwrap();
            assert_eq!(found.lines, [7, 1234, 56][..whole]);
            assert_eq!(found.torn as usize, len - [0, 2, 7, 10][whole]);
            journal.append(&8).unwrap();
            drop(journal);
            let wanted: Vec<u32> = [7, 1234, 56][..whole].iter().copied().chain([8]).collect();
            assert_eq!(lines(&path), wanted);
        }
    }

    #[test]
    fn one_process_writes_and_others_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (mut journal, _) = Journal::open::<u32>(&path).unwrap();
        journal.append(&1).unwrap();
        assert!(matches!(Journal::open::<u32>(&path), Err(JournalError::InUse { .. })));
        assert_eq!(lines(&path), [1]);
        drop(journal);
        assert_eq!(Journal::open::<u32>(&path).unwrap().1.lines, [1]);
    }

    #[test]
    fn what_something_else_wrote_is_refused_with_its_line_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        std::fs::write(&path, "1\nno number\n3\n").unwrap();
        let error = Journal::open::<u32>(&path).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { line: 2, .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\nno number\n3\n");
        let missing = folder.path().join("nowhere").join("journal.jsonl");
        assert!(matches!(Journal::open::<u32>(&missing), Err(JournalError::Io { .. })));
    }
}
