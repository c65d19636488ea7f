//! Files as memory: the one place where a file is mapped.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use super::error::StoreError;

/// Maps a whole file for reading. The file must stay as it is while it is mapped: a file that is
/// cut short meanwhile ends the process (SIGBUS). The store itself only replaces files by renaming,
/// which leaves a mapping whole.
pub(crate) fn map_file(path: &Path) -> Result<Arc<memmap2::Mmap>, StoreError> {
    // Before it is opened: opening a named pipe would wait for a writer.
    let facts = path.metadata().map_err(|e| StoreError::io("open", path, e))?;
    if !facts.is_file() {
        return Err(StoreError::NotAModel {
            path: path.to_owned(),
            why: "is not a regular file; give the path of a model file",
        });
    }
    let file = File::open(path).map_err(|e| StoreError::io("open", path, e))?;
    // SAFETY: the mapping is private and read-only, and is only ever read as bytes, for which any
    // content is valid. Nobody is expected to write to a model file in place; were it done, readers
    // would see other numbers, but every offset into the mapping was checked against its length,
    // which does not change.
    let map = unsafe { memmap2::Mmap::map(&file) };
    Ok(Arc::new(map.map_err(|e| StoreError::io("map", path, e))?))
}
