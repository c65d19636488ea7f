//! Tasks: original files are read as they are, and what is right is judged right.

pub mod code;
pub mod ifeval;
mod reading;

use std::path::PathBuf;

use unsay::tasks::{self, Loaded};

/// The folder of all data sets, where it is; says so where it is not.
fn data_sets() -> Option<PathBuf> {
    let folder = super::support::shared().map(|folder| folder.join("data"));
    if folder.is_none() {
        eprintln!("skipped: the public data sets are not here");
    }
    folder
}

/// A task's items from the folder of all data sets.
fn read(name: &str, folder: &std::path::Path) -> Loaded {
    tasks::load(name, Some(folder)).unwrap()
}
