//! From a path to items.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Item;
use super::json::Json;
use super::list::{self, Task};

/// The variable that names the folder of all data sets.
pub const DATA_FOLDER: &str = "UNSAY_DATA";

/// What a file held.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// Where it was read from.
    pub path: PathBuf,
    /// In the order of the file; ids are unique.
    pub items: Vec<Item>,
    /// Records that could not be read.
    pub damaged: Vec<Damaged>,
}

/// A record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// From 1: the line, or in a JSON array the record's place.
    pub line: usize,
    pub why: String,
}

/// Why there are no items.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("there is no task `{name}`; `unsay tasks` lists those that are known")]
    Unknown { name: String },
    #[error(
        "the data of {task} are not here: {looked}; name its file, or set {DATA_FOLDER} to the folder of \
         all data sets"
    )]
    NotFound { task: &'static str, looked: String },
    #[error("{path} is neither a file nor a folder")]
    NoPath { path: PathBuf },
    #[error("{task} is always a file of your own, which must be named")]
    Unnamed { task: &'static str },
    #[error("cannot read {path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} is no file of {task}: {why}; expected {expected}")]
    Form { path: PathBuf, task: &'static str, why: String, expected: &'static str },
    #[error("{task} has no item `{id}`; its ids begin with `{first}`")]
    NoItem { task: String, id: String, first: String },
}

/// The folder of all data sets, where one is named.
pub fn data_folder() -> Option<PathBuf> {
    std::env::var_os(DATA_FOLDER).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The items of a task by its name. `path` is its file, or a folder that holds it; without one the folder
/// of all data sets is looked in.
pub fn load(name: &str, path: Option<&Path>) -> Result<Loaded, TaskError> {
    let task = list::named(name).ok_or_else(|| TaskError::Unknown { name: name.to_owned() })?;
    let folder = data_folder();
    let place = path.or(folder.as_deref());
    load_from(task, &find(task, place)?)
}

/// The file of a task: `place` itself, or in that folder where its authors or the table put it.
pub fn find(task: &'static Task, place: Option<&Path>) -> Result<PathBuf, TaskError> {
    let missing = |looked: String| TaskError::NotFound { task: task.name, looked };
    if let Some(file) = place.filter(|place| place.is_file()) {
        return Ok(file.to_owned());
    }
    if task.files.is_empty() {
        return Err(TaskError::Unnamed { task: task.name });
    }
    let place = place.ok_or_else(|| missing(format!("no path is given, nor {DATA_FOLDER}")))?;
    if !place.is_dir() {
        return Err(TaskError::NoPath { path: place.to_owned() });
    }
    for file in task.files {
        let bare = file.rsplit('/').next().unwrap_or(file);
        for name in [file, bare] {
            for path in [place.join(name), place.join(format!("{name}.gz"))] {
                if path.is_file() {
                    return Ok(path);
                }
            }
        }
    }
    Err(missing(format!("{} holds no {}", place.display(), task.files.join(" or "))))
}

/// Reads a file of a task.
pub fn load_from(task: &'static Task, path: &Path) -> Result<Loaded, TaskError> {
    let failed = |source| TaskError::Io { path: path.to_owned(), source };
    let text = unpacked(std::fs::read(path).map_err(failed)?).map_err(failed)?;
    let mut loaded = Loaded { path: path.to_owned(), items: Vec::new(), damaged: Vec::new() };
    let mut ids = BTreeSet::new();
    for (line, record) in records_of(&text) {
        let item = record.and_then(|record| task.item(line, &record));
        match item {
            Ok(item) if ids.contains(&item.id) => {
                let why = format!("the id {} stands above already", item.id);
                loaded.damaged.push(Damaged { line, why });
            }
            Ok(item) => {
                ids.insert(item.id.clone());
                loaded.items.push(item);
            }
            Err(why) => loaded.damaged.push(Damaged { line, why }),
        }
    }
    if loaded.items.is_empty() {
        let why = match loaded.damaged.first() {
            Some(Damaged { line, why }) => format!("record {line}: {why}"),
            None => "it is empty".to_owned(),
        };
        let (path, expected) = (path.to_owned(), task.form.expected);
        return Err(TaskError::Form { path, task: task.name, why, expected });
    }
    Ok(loaded)
}

impl Task {
    /// The item of a record of the task's form, or what is wrong with it. `line` names it where it has no
    /// id of its own.
    pub fn item(&self, line: usize, record: &Json) -> Result<Item, String> {
        if !matches!(record, Json::Object(_)) {
            return Err("it is no JSON object".to_owned());
        }
        let mut item = (self.form.item)(record)?;
        if item.id.is_empty() {
            item.id = format!("{}-{line}", self.name);
        }
        if item.question.trim().is_empty() {
            return Err("its question is empty".to_owned());
        }
        Ok(item)
    }
}

/// A record with its number, from 1: its value, or what is wrong with it.
pub type Record = (usize, Result<Json, String>);

/// The records of any file of JSON lines, or of one array, with their numbers from 1.
pub fn records(path: &Path) -> Result<Vec<Record>, TaskError> {
    let failed = |source| TaskError::Io { path: path.to_owned(), source };
    Ok(records_of(&unpacked(std::fs::read(path).map_err(failed)?).map_err(failed)?))
}

/// The text of a file, gzipped or not. Invalid UTF-8 is left to the record that holds it.
fn unpacked(bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
    Ok(plain)
}

/// The records of a file with their numbers: lines, blank ones left out, or the values of one array.
fn records_of(bytes: &[u8]) -> Vec<Record> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let array = bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    if array
        && let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(Json::List(values)) = Json::read(text)
    {
        return values.into_iter().enumerate().map(|(at, value)| (at + 1, Ok(value))).collect();
    }
    let lines = bytes.split(|b| *b == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    filled
        .map(|(at, line)| {
            let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned());
            (at + 1, text.and_then(Json::read))
        })
        .collect()
}
