//! Which Python runs the programs, and what of the file system it must see.
//!
//! A `python3` on the path may be a version manager's shim or a link of a virtual environment, so
//! the candidate itself is asked where it lies, what it imports from and which libraries it maps.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::outcome::SandboxError;

/// A Python interpreter and what it must be able to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interpreter {
    /// The path by which it is started (in a virtual environment: the environment's).
    pub executable: PathBuf,
    /// Such as `3.11.7`.
    pub version: String,
    /// Files and folders that it reads; folders with all that is in them.
    pub read: Vec<PathBuf>,
    /// Files that the kernel executes to start it: the interpreter and the dynamic loader.
    pub execute: Vec<PathBuf>,
}

/// What every program on the system may need to be loaded, and what Python's own modules read.
const SYSTEM: &[&str] = &[
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
];

/// Prints what the interpreter knows about itself, one JSON object.
const QUESTION: &str = r#"
import json, sys, sysconfig
for name in ("math", "_ctypes", "_ssl", "_hashlib", "_sqlite3", "_lzma", "_bz2", "zlib", "_decimal"):
    try:
        __import__(name)
    except ImportError:
        pass
maps = set()
with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
    for line in lines:
        parts = line.rstrip("\n").split(None, 5)
        if len(parts) == 6 and parts[5].startswith("/"):
            maps.add(parts[5])
names = [sysconfig.get_path(key) for key in ("stdlib", "platstdlib", "purelib", "platlib")]
print(json.dumps({
    "executable": sys.executable or "",
    "version": list(sys.version_info[:3]),
    "prefixes": sorted({sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}),
    "path": [p for p in sys.path + names if p],
    "maps": sorted(maps),
}))
"#;

#[derive(Deserialize)]
struct Said {
    executable: String,
    version: [u32; 3],
    prefixes: Vec<String>,
    path: Vec<String>,
    maps: Vec<String>,
}

impl Interpreter {
    /// Asks the program at `candidate` whether it is a usable Python and where it lies.
    pub fn ask(candidate: &Path) -> Result<Interpreter, SandboxError> {
        let refuse =
            |why: String| SandboxError::Interpreter { path: candidate.display().to_string(), why };
        let output = Command::new(candidate)
            .args(["-I", "-B", "-X", "utf8", "-c", QUESTION])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| refuse(format!("could not be started: {error}")))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let said = stderr.trim().lines().next_back().unwrap_or("it said nothing").to_owned();
            return Err(refuse(format!("is not a Python that runs ({}: {said})", output.status)));
        }
        let said: Said = serde_json::from_slice(&output.stdout)
            .map_err(|_| refuse("did not answer as a Python of 3.9 or newer does".to_owned()))?;
        Interpreter::from_answer(said).map_err(refuse)
    }

    fn from_answer(said: Said) -> Result<Interpreter, String> {
        let [major, minor, patch] = said.version;
        let version = format!("{major}.{minor}.{patch}");
        if (major, minor) < (3, 9) {
            return Err(format!("is Python {version}; 3.9 or newer is needed"));
        }
        if !Path::new(&said.executable).is_absolute() {
            return Err("does not know its own path".to_owned());
        }
        let executable = PathBuf::from(&said.executable);
        let real = executable
            .canonicalize()
            .map_err(|error| format!("its executable {}: {error}", said.executable))?;
        let mut read: BTreeSet<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        read.extend([executable.clone(), real.clone()]);
        for prefix in &said.prefixes {
            let prefix = Path::new(prefix);
            read.extend(["lib", "lib64", "pyvenv.cfg"].map(|name| prefix.join(name)));
        }
        // A virtual environment's configuration lies beside or above its executable.
        for folder in executable.ancestors().skip(1).take(2) {
            read.insert(folder.join("pyvenv.cfg"));
        }
        read.extend(said.path.iter().map(PathBuf::from));
        read.extend(said.maps.iter().map(PathBuf::from));
        let loader = said.maps.iter().map(PathBuf::from).filter(|path| is_loader(path));
        let execute: BTreeSet<PathBuf> = loader.chain([real]).collect();
        Ok(Interpreter {
            executable,
            version,
            read: readable(read),
            execute: execute.into_iter().collect(),
        })
    }
}

/// The candidates on the search path, in order, each once.
pub fn candidates(path: Option<&OsStr>) -> Vec<PathBuf> {
    let folders: Vec<PathBuf> =
        path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let mut found = Vec::new();
    for name in ["python3", "python"] {
        for folder in folders.iter().chain(&usual).filter(|folder| folder.is_absolute()) {
            let candidate = folder.join(name);
            if candidate.is_file() && !found.contains(&candidate) {
                found.push(candidate);
            }
        }
    }
    found
}

/// The paths that exist, real, none of them within another, none of them a home or above one.
fn readable(paths: BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let home = dirs::home_dir().and_then(|home| home.canonicalize().ok());
    let real: BTreeSet<PathBuf> = paths
        .into_iter()
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| path.parent().is_some())
        .filter(|path| !home.as_ref().is_some_and(|home| home.starts_with(path)))
        .collect();
    real.iter()
        .filter(|path| !path.ancestors().skip(1).any(|above| real.contains(above)))
        .cloned()
        .collect()
}

/// Whether a mapped file is the dynamic loader, which the kernel executes beside the interpreter.
fn is_loader(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.starts_with("ld-") || name.starts_with("ld.so") || name.starts_with("ld64.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(executable: &Path, prefix: &Path, path: &[&str]) -> Said {
        Said {
            executable: executable.display().to_string(),
            version: [3, 11, 7],
            prefixes: vec![prefix.display().to_string()],
            path: path.iter().map(|path| (*path).to_owned()).collect(),
            maps: vec![],
        }
    }

    #[test]
    fn an_interpreter_in_a_home_opens_its_libraries_and_nothing_else_of_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        for folder in [&bin, &lib, &root.join("private")] {
            std::fs::create_dir(folder).unwrap();
        }
        let (python, link) = (bin.join("python3.11"), bin.join("python3"));
        std::fs::write(&python, "").unwrap();
        std::os::unix::fs::symlink(&python, &link).unwrap();
        let inside = lib.join("python3.11");
        let found = said(&link, &root, &[&inside.display().to_string(), "/"]);
        let found = Interpreter::from_answer(found).unwrap();
        assert_eq!((&found.executable, &found.execute), (&link, &vec![python.clone()]));
        let opened: Vec<_> = found.read.iter().filter(|path| path.starts_with(&root)).collect();
        assert_eq!(opened, [&python, &lib]);
        assert!(found.read.iter().all(|path| !root.starts_with(path)), "{:?}", found.read);
    }

    #[test]
    fn no_home_is_opened_whatever_an_interpreter_says() {
        let home = dirs::home_dir().unwrap().canonicalize().unwrap();
        let above = home.parent().unwrap_or(&home).to_owned();
        let all = readable(BTreeSet::from([home.clone(), above, PathBuf::from("/")]));
        assert_eq!(all, Vec::<PathBuf>::new());
    }

    #[test]
    fn old_and_lost_interpreters_are_refused_with_the_reason() {
        let python = std::env::current_exe().unwrap();
        let old = Said { version: [3, 8, 18], ..said(&python, Path::new("/usr"), &[]) };
        assert!(Interpreter::from_answer(old).unwrap_err().contains("3.8.18"));
        let lost = said(Path::new(""), Path::new("/usr"), &[]);
        assert!(Interpreter::from_answer(lost).unwrap_err().contains("its own path"));
    }

    #[test]
    fn candidates_come_in_the_order_of_the_path() {
        let root = tempfile::tempdir().unwrap();
        for name in ["b/python", "a/python3", "a/python"] {
            let file = root.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let path = std::env::join_paths([root.path().join("b"), root.path().join("a")]).unwrap();
        let found = candidates(Some(&path));
        let mine: Vec<_> = found.iter().filter_map(|p| p.strip_prefix(root.path()).ok()).collect();
        assert_eq!(mine, ["a/python3", "b/python", "a/python"].map(Path::new));
    }
}
