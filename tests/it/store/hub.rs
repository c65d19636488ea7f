//! A small hub on this machine: the addresses and headers of the real one, over plain HTTP, with the
//! faults that a test asks for.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

/// The one commit of every repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What the hub has and how it misbehaves. A path is `owner/name/file`.
#[derive(Default)]
pub struct Rules {
    pub files: BTreeMap<String, Vec<u8>>,
    /// What is sent in place of a file's content; marks and sizes stay those of the file.
    pub lies: BTreeMap<String, Vec<u8>>,
    /// Files that are marked with a SHA-256, as large ones are; others have Git's mark.
    pub large: Vec<String>,
    pub licence: Option<String>,
    /// Who reads must say this.
    pub token: Option<String>,
    /// Connections end after so many bytes of a body.
    pub cut_after: Option<usize>,
    /// A body stops after so many bytes, and the connection stays open until the hub is let go.
    pub stall_after: Option<usize>,
    /// Requests for a part of a file are answered with all of it.
    pub no_ranges: bool,
    /// No mark of a file's content is given.
    pub no_marks: bool,
    /// Files are said to be one byte longer than they are.
    pub wrong_size: bool,
    /// Large files are given by another server, to which the hub leads.
    pub store: bool,
    /// The status of every answer.
    pub status: Option<u16>,
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub path: String,
    /// The byte from which on a file was asked for.
    pub from: usize,
    pub token: Option<String>,
    /// Bytes of the body that were sent.
    pub sent: usize,
}

struct State {
    rules: Mutex<Rules>,
    /// In the order of their arrival, with the bytes that were sent since.
    asked: Mutex<Vec<(Asked, Arc<AtomicUsize>)>>,
    /// Whether stalled connections may end.
    released: Mutex<bool>,
    release: Condvar,
    store: String,
}

/// The hub; its threads end with the process.
pub struct TinyHub {
    pub address: String,
    state: Arc<State>,
}

impl TinyHub {
    pub fn start(rules: Rules) -> Self {
        let hub = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State {
            rules: Mutex::new(rules),
            asked: Mutex::default(),
            released: Mutex::default(),
            release: Condvar::new(),
            store: address(&store),
        });
        let address = address(&hub);
        for (listener, is_store) in [(hub, false), (store, true)] {
            let state = Arc::clone(&state);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = Arc::clone(&state);
                    std::thread::spawn(move || answer(stream, &state, is_store));
                }
            });
        }
        Self { address, state }
    }

    /// Changes how it behaves.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.state.rules.lock().unwrap());
    }

    /// What was asked since the last time.
    pub fn asked(&self) -> Vec<Asked> {
        let asked = std::mem::take(&mut *self.state.asked.lock().unwrap());
        let with = |(asked, sent): (Asked, Arc<AtomicUsize>)| Asked {
            sent: sent.load(Ordering::Relaxed),
            ..asked
        };
        asked.into_iter().map(with).collect()
    }

    /// What was asked for a file since the last time.
    pub fn asked_for(&self, ending: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.path.ends_with(ending)).collect()
    }

    /// Lets stalled connections end.
    pub fn release(&self) {
        *self.state.released.lock().unwrap() = true;
        self.state.release.notify_all();
    }
}

impl Drop for TinyHub {
    fn drop(&mut self) {
        self.release();
    }
}

/// A head of an answer, with the headers that it takes.
fn head(stream: &mut TcpStream, status: u16, headers: &[(&str, String)]) {
    let mut text = format!("HTTP/1.1 {status} Said\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    let _ = stream.write_all(format!("{text}\r\n").as_bytes());
}

fn refuse(stream: &mut TcpStream, status: u16, message: &str) {
    let headers = [("X-Error-Message", message.to_owned()), ("Content-Length", "0".to_owned())];
    head(stream, status, &headers);
}

fn answer(mut stream: TcpStream, state: &State, is_store: bool) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return,
        }
    }
    let request = String::from_utf8(request).unwrap();
    let header = |name: &str| {
        let lines = request.lines().skip(1);
        let mut pairs = lines.filter_map(|line| line.split_once(": "));
        pairs.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let range = header("range");
    let from = range.as_deref().and_then(|range| range.strip_prefix("bytes="));
    let from = from.and_then(|range| range.trim_end_matches('-').parse().ok()).unwrap_or(0);
    let asked = Asked { path, from, token: header("authorization"), sent: 0 };
    let sent = Arc::default();
    state.asked.lock().unwrap().push((asked.clone(), Arc::clone(&sent)));
    serve(&mut stream, state, &asked, &sent, is_store);
}

fn serve(
    stream: &mut TcpStream,
    state: &State,
    asked: &Asked,
    count: &AtomicUsize,
    is_store: bool,
) {
    let rules = state.rules.lock().unwrap();
    if let Some(status) = rules.status {
        return refuse(stream, status, "busy");
    }
    let wanted = rules.token.as_ref().map(|token| format!("Bearer {token}"));
    if !is_store && wanted.is_some() && asked.token != wanted {
        return refuse(stream, 401, "Access is restricted");
    }
    let path = asked.path.split('?').next().unwrap().trim_start_matches('/');
    if let Some(rest) = path.strip_prefix("api/models/") {
        let (repo, revision) = rest.split_once("/revision/").unwrap();
        return list(stream, &rules, repo, revision);
    }
    let (repo, rest) = path.split_once("/resolve/").unwrap();
    let (revision, file) = rest.split_once('/').unwrap();
    let key = format!("{repo}/{file}");
    let Some(content) = rules.files.get(&key).filter(|_| is_revision(revision)) else {
        return refuse(stream, 404, "Entry not found");
    };
    let is_large = rules.large.contains(&key);
    let mut headers = vec![("X-Repo-Commit", COMMIT.to_owned())];
    if !rules.no_marks {
        let name = if is_large { "X-Linked-ETag" } else { "ETag" };
        headers.push((name, format!("\"{}\"", mark(content, is_large))));
    }
    if is_large && rules.store && !is_store {
        headers.push(("Location", format!("{}/{path}", state.store)));
        headers.push(("X-Linked-Size", content.len().to_string()));
        headers.push(("Content-Length", "0".to_owned()));
        return head(stream, 302, &headers);
    }
    let sent = rules.lies.get(&key).unwrap_or(content).clone();
    let total = sent.len() + usize::from(rules.wrong_size);
    let from = if rules.no_ranges { 0 } else { asked.from };
    if from >= total {
        headers.push(("Content-Range", format!("bytes */{total}")));
        headers.push(("Content-Length", "0".to_owned()));
        return head(stream, 416, &headers);
    }
    headers.push(("Content-Length", (total - from).to_string()));
    let status = if rules.no_ranges { 200 } else { 206 };
    if status == 206 {
        headers.push(("Content-Range", format!("bytes {from}-{}/{total}", total - 1)));
    }
    let (cut, stall) = (rules.cut_after, rules.stall_after);
    drop(rules);
    head(stream, status, &headers);
    let end = sent.len().min(from + cut.or(stall).unwrap_or(usize::MAX).min(sent.len()));
    for piece in sent[from..end].chunks(64 << 10) {
        // Before they are written: who has read them may look at once.
        count.fetch_add(piece.len(), Ordering::Relaxed);
        if stream.write_all(piece).is_err() {
            return;
        }
    }
    let _ = stream.flush();
    if stall.is_some() && end < sent.len() {
        let mut released = state.released.lock().unwrap();
        while !*released {
            released = state.release.wait(released).unwrap();
        }
    }
}

fn is_revision(revision: &str) -> bool {
    ["main", "v1", COMMIT].contains(&revision)
}

/// The hub's mark of a content.
fn mark(content: &[u8], is_large: bool) -> String {
    use sha1::Digest;
    if is_large {
        return sha256(content);
    }
    let mut sha = sha1::Sha1::new();
    sha.update(format!("blob {}\0", content.len()));
    sha.update(content);
    sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(content: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn list(stream: &mut TcpStream, rules: &Rules, repo: &str, revision: &str) {
    let within = format!("{repo}/");
    let files: Vec<_> = rules
        .files
        .iter()
        .filter_map(|(key, content)| {
            let name = key.strip_prefix(&within)?;
            let mut file = json!({"rfilename": name, "size": content.len()});
            if rules.large.contains(key) && !rules.no_marks {
                file["lfs"] = json!({"sha256": mark(content, true), "size": content.len()});
            }
            Some(file)
        })
        .collect();
    if files.is_empty() || !is_revision(revision) {
        return refuse(stream, 404, "Repository not found");
    }
    let body = json!({
        "sha": COMMIT, "siblings": files, "cardData": {"license": rules.licence},
    });
    let body = body.to_string();
    head(stream, 200, &[("Content-Length", body.len().to_string())]);
    let _ = stream.write_all(body.as_bytes());
}
