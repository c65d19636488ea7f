//! One file of the hub, fetched into a part that a later pull goes on with, and held against what is
//! known of it: the manifest's size and digest, and the hub's.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::digest::{Hasher, git_digest_of};
use super::hub::{Hub, PATIENCE, Refusal, WAIT};
use super::manifest::ModelFile;
use super::pull::Progress;

/// A file of a repository at a revision.
pub(super) struct HubFile<'a> {
    pub(super) repo: &'a str,
    pub(super) revision: &'a str,
    pub(super) path: &'a str,
}

/// A file that is here whole.
pub(super) struct Arrived {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The commit that it is of, if the hub said it.
    pub(super) commit: Option<String>,
}

/// A file that arrives: `NAME.part` with the bytes, and `NAME.mark` with the hub's mark of the content
/// that they are the beginning of, and its length.
struct Part {
    path: PathBuf,
    mark_path: PathBuf,
    file: File,
    hasher: Hasher,
    /// Bytes that an earlier pull or attempt left.
    resumed: u64,
}

impl Part {
    /// Opens what is there of a file, and reads it to go on with its digest.
    fn open(folder: &Path, name: &str) -> std::io::Result<Self> {
        let path = folder.join(format!("{name}.part"));
        let mark_path = folder.join(format!("{name}.mark"));
        let mut file = File::options().read(true).append(true).create(true).open(&path)?;
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => hasher.update(&buffer[..count]),
            }
        }
        let resumed = hasher.bytes;
        Ok(Self { path, mark_path, file, hasher, resumed })
    }

    fn len(&self) -> u64 {
        self.hasher.bytes
    }

    /// Begins again.
    fn clear(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.hasher = Hasher::new();
        self.resumed = 0;
        Ok(())
    }

    /// Whether what is here begins a file with this mark; where the hub gives none, only a digest that
    /// is known can tell in the end.
    fn begins(&self, mark: Option<&str>, known: &ModelFile) -> bool {
        match mark {
            None => known.sha256.is_some(),
            Some(mark) => self.marked().is_some_and(|(own, _)| own == mark),
        }
    }

    /// The mark, and the length of the whole file.
    fn marked(&self) -> Option<(String, u64)> {
        let text = std::fs::read_to_string(&self.mark_path).ok()?;
        let (mark, total) = text.split_once('\n')?;
        Some((mark.to_owned(), total.trim().parse().ok()?))
    }

    fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_file(&self.mark_path);
    }
}

/// How an attempt went on.
enum Step {
    /// All bytes are here.
    Whole { mark: Option<String>, commit: Option<String> },
    /// The connection ended early.
    Cut(Refusal),
}

/// Fetches a file into a folder of parts and answers with where it lies, whole and checked. A part that
/// was left there is gone on with, if it is of the same content.
pub(super) fn fetch(
    hub: &Hub,
    file: &HubFile<'_>,
    known: &ModelFile,
    parts: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Arrived, String> {
    let unwritable = |e: std::io::Error| format!("cannot write in {}: {e}", parts.display());
    let mut part = Part::open(parts, &known.name).map_err(unwritable)?;
    let (mut empty_handed, mut began_again) = (0, false);
    loop {
        let before = part.len();
        match attempt(hub, file, known, &mut part, progress) {
            Ok(Step::Whole { mark, commit }) => match checked(known, &part, mark.as_deref()) {
                Ok(sha256) => {
                    part.file.sync_all().map_err(unwritable)?;
                    let bytes = part.len();
                    return Ok(Arrived { path: part.path, bytes, sha256, commit });
                }
                // What was left may have been damaged where it lay: once more, from the front.
                Err(_) if part.resumed > 0 && !began_again => {
                    began_again = true;
                    part.clear().map_err(unwritable)?;
                }
                Err(why) => {
                    part.remove();
                    return Err(why);
                }
            },
            Ok(Step::Cut(refusal)) | Err(refusal) if refusal.is_passing => {
                empty_handed = if part.len() > before { 0 } else { empty_handed + 1 };
                part.resumed = part.len();
                if empty_handed == PATIENCE {
                    return Err(given_up(part, refusal.why));
                }
                if empty_handed > 0 {
                    std::thread::sleep(WAIT * 2u32.pow(empty_handed - 1));
                }
            }
            Ok(Step::Cut(refusal)) | Err(refusal) => return Err(given_up(part, refusal.why)),
        }
    }
}

/// The reason, with what is kept for the next pull.
fn given_up(part: Part, why: String) -> String {
    match part.len() {
        0 => {
            part.remove();
            why
        }
        bytes => format!("{why}; {bytes} bytes are kept, and the next pull goes on there"),
    }
}

/// Asks for what is missing and takes what comes.
fn attempt(
    hub: &Hub,
    file: &HubFile<'_>,
    known: &ModelFile,
    part: &mut Part,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Step, Refusal> {
    let io = |e: std::io::Error| Refusal::lasting(format!("cannot write: {e}"));
    let asked = part.len();
    let mut answer = hub.ask(file.repo, file.revision, file.path, asked)?;
    let same = part.begins(answer.mark.as_deref(), known);
    if asked > 0 && answer.status == 416 && same {
        let total = known.bytes.or(part.marked().map(|(_, total)| total));
        if total == Some(asked) {
            return Ok(Step::Whole { mark: answer.mark, commit: answer.commit });
        }
    }
    if asked > 0 && (!same || answer.status == 416) {
        // The part is of other content, or longer than the file.
        part.clear().map_err(io)?;
        answer = hub.ask(file.repo, file.revision, file.path, 0)?;
    }
    let total = answer.total.filter(|_| answer.status != 416);
    let total = total.ok_or_else(|| Refusal::lasting("it does not say how large the file is"))?;
    if let Some(bytes) = known.bytes.filter(|&bytes| bytes != total) {
        return Err(Refusal::lasting(format!(
            "the file there has {total} bytes where {bytes} are expected"
        )));
    }
    if let (Some(sha256), Some(there)) = (&known.sha256, answer.mark.as_deref().filter(is_sha256))
        && sha256 != there
    {
        return Err(Refusal::lasting(format!(
            "the file there has the SHA-256 {there} where {sha256} is expected"
        )));
    }
    if answer.from != part.len() {
        // A server that knows no ranges begins at the front.
        if answer.from != 0 {
            return Err(Refusal::lasting(format!(
                "it answered from byte {} where {} was asked for",
                answer.from,
                part.len()
            )));
        }
        part.clear().map_err(io)?;
    }
    if let Some(mark) = &answer.mark {
        std::fs::write(&part.mark_path, format!("{mark}\n{total}")).map_err(io)?;
    }
    progress(Progress::Bytes { done: part.len(), total });
    let mut buffer = vec![0; 1 << 18];
    while part.len() < total {
        let count = match answer.body.read(&mut buffer) {
            Ok(0) => {
                let why = format!("the connection ended after {} of {total} bytes", part.len());
                return Ok(Step::Cut(Refusal::passing(why)));
            }
            Ok(count) => count,
            Err(error) => {
                let why = format!("after {} of {total} bytes: {error}", part.len());
                return Ok(Step::Cut(Refusal::passing(why)));
            }
        };
        if part.len() + count as u64 > total {
            part.clear().map_err(io)?;
            return Err(Refusal::lasting(format!(
                "it gave more than the {total} bytes of the file"
            )));
        }
        part.file.write_all(&buffer[..count]).map_err(io)?;
        part.hasher.update(&buffer[..count]);
        progress(Progress::Bytes { done: part.len(), total });
    }
    Ok(Step::Whole { mark: answer.mark, commit: answer.commit })
}

fn is_sha256(text: &&str) -> bool {
    text.len() == 64 && text.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Holds a whole file against the manifest and the hub's mark; its SHA-256.
fn checked(known: &ModelFile, part: &Part, mark: Option<&str>) -> Result<String, String> {
    let sha256 = part.hasher.clone().finish();
    let wrong = |kind: &str, found: &str, wanted: &str| {
        Err(format!("what it gave has the {kind} {found} where {wanted} is known of it"))
    };
    if let Some(wanted) = known.sha256.as_deref().filter(|wanted| *wanted != sha256) {
        return wrong("SHA-256", &sha256, wanted);
    }
    match mark {
        Some(mark) if is_sha256(&mark) => {
            if mark.eq_ignore_ascii_case(&sha256) {
                return Ok(sha256);
            }
            wrong("SHA-256", &sha256, mark)
        }
        // Small files are marked as Git does.
        Some(mark) if mark.len() == 40 && mark.bytes().all(|c| c.is_ascii_hexdigit()) => {
            let found = git_digest_of(&part.path, part.len()).map_err(|e| e.to_string())?;
            if mark.eq_ignore_ascii_case(&found) {
                return Ok(sha256);
            }
            wrong("digest of Git", &found, mark)
        }
        _ => Ok(sha256),
    }
}
