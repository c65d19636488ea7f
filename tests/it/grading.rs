//! Grading of answers, against pairs of our own, two official graders, and every gold of every set.

mod oracles;
mod own;

use std::path::Path;

use serde_json::Value;

/// The records of a JSON-lines file.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text<'v>(record: &'v Value, field: &str) -> &'v str {
    record[field].as_str().unwrap_or_else(|| panic!("no `{field}` in {record}"))
}

/// The folder with public data, where it is; says so where it is not.
fn public() -> Option<std::path::PathBuf> {
    let folder = super::support::shared();
    if folder.is_none() {
        eprintln!("skipped: the public data sets are not here");
    }
    folder
}
