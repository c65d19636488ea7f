//! The Hugging Face hub, or a mirror of it: what a repository holds, and its files.
//!
//! The crate hf-hub gives addresses, the user's saved token and the listing. Bytes are fetched here,
//! by the HTTP client that it stands on, since its own download (version 0.5) holds nothing against a
//! digest or a size, appends whatever answers a request for the rest of a file, begins again at the
//! front when a retry follows a resumed part that brought nothing, waits for ever on a connection that
//! says nothing, takes names of files from headers as they come, and panics on some of them. It reads
//! neither `HF_TOKEN` nor `HF_HUB_OFFLINE`; both are read here.

use std::fmt::Display;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use hf_hub::api::sync::{Api, ApiBuilder, ApiRepo};
use hf_hub::{Repo, RepoType};
use serde::Deserialize;

const MAIN_ENDPOINT: &str = "https://huggingface.co";
/// Most bytes of a listing.
const LISTING_BYTES: u64 = 32 << 20;
/// Seconds without a byte after which a connection is given up, unless `HF_HUB_DOWNLOAD_TIMEOUT` says
/// otherwise.
const SILENCE: u64 = 30;
const CONNECT: Duration = Duration::from_secs(30);
/// Attempts in a row that bring nothing, after which the hub is given up.
pub(super) const PATIENCE: u32 = 4;
/// The wait before the second attempt; it doubles.
pub(super) const WAIT: Duration = Duration::from_millis(200);
/// Most redirects of one request.
const REDIRECTS: usize = 8;

/// The hub as the environment has it: `HF_ENDPOINT`, `HF_TOKEN` or the token that was saved by logging
/// in, `HF_HUB_OFFLINE`, `HF_HUB_DOWNLOAD_TIMEOUT`.
pub(super) struct Hub {
    api: Api,
    agent: ureq::Agent,
    endpoint: String,
    token: Option<String>,
    silence: Duration,
}

/// Why the hub did not give what was asked of it.
pub(super) struct Refusal {
    pub(super) why: String,
    /// Asking again later may help.
    pub(super) is_passing: bool,
}

impl Refusal {
    pub(super) fn lasting(why: impl Into<String>) -> Self {
        Self { why: plain(&why.into()), is_passing: false }
    }

    pub(super) fn passing(why: impl Display) -> Self {
        Self { why: plain(&why.to_string()), is_passing: true }
    }
}

/// A text from elsewhere on one line, without characters that a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(600).collect()
}

/// What a repository holds at a revision.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) commit: String,
    pub(super) licence: Option<String>,
    pub(super) files: Vec<Listed>,
}

/// A file of a repository.
#[derive(Debug)]
pub(super) struct Listed {
    /// Its path in the repository.
    pub(super) path: String,
    pub(super) bytes: Option<u64>,
    pub(super) sha256: Option<String>,
}

/// A request for the rest of a file was answered.
pub(super) struct Answer {
    pub(super) status: u16,
    /// Where in the file the body begins.
    pub(super) from: u64,
    /// Bytes of the whole file.
    pub(super) total: Option<u64>,
    /// The hub's mark of the file's content: a SHA-256, or a digest of Git's.
    pub(super) mark: Option<String>,
    pub(super) commit: Option<String>,
    pub(super) body: Box<dyn Read>,
}

impl Hub {
    /// Nothing is asked yet; refuses where the user wants to stay offline.
    pub(super) fn from_env() -> Result<Self, String> {
        let set = |name: &str| {
            let value = std::env::var(name).unwrap_or_default().trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        if let Some(offline) = set("HF_HUB_OFFLINE")
            && ["1", "true", "yes", "on"].contains(&offline.to_lowercase().as_str())
        {
            return Err(format!("HF_HUB_OFFLINE is {offline}, so the hub is not asked"));
        }
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| MAIN_ENDPOINT.to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        if authority(&endpoint).is_none() {
            return Err(format!("HF_ENDPOINT is {endpoint:?}, which is no http(s) address"));
        }
        // As hf-hub has it, but that a user without a home has no saved token in place of a panic.
        let home = || dirs::home_dir().map(|home| home.join(".cache").join("huggingface"));
        let home = set("HF_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
        let cache = hf_hub::Cache::new(home.join("hub"));
        let token = set("HF_TOKEN").or_else(|| cache.token());
        if token.as_ref().is_some_and(|token| token.chars().any(|c| !c.is_ascii_graphic())) {
            return Err("the token of HF_TOKEN (or the saved one) holds characters that no token \
                        has"
            .to_owned());
        }
        let seconds = set("HF_HUB_DOWNLOAD_TIMEOUT").and_then(|text| text.parse().ok());
        let silence = Duration::from_secs(seconds.filter(|&s| s > 0).unwrap_or(SILENCE));
        let api = ApiBuilder::from_cache(cache)
            .with_endpoint(endpoint.clone())
            .with_token(token.clone())
            .with_progress(false)
            .build()
            .map_err(|e| plain(&e.to_string()))?;
        let agent = ureq::Agent::config_builder()
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("unsay/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(silence))
            .timeout_per_read(Some(silence))
            .build();
        Ok(Self { api, agent: agent.into(), endpoint, token, silence })
    }

    fn repository(&self, repo: &str, revision: &str) -> ApiRepo {
        let revision = revision.to_owned();
        self.api.repo(Repo::with_revision(repo.to_owned(), RepoType::Model, revision))
    }

    /// What a repository holds; asked several times where that may help.
    pub(super) fn list(&self, repo: &str, revision: &str) -> Result<Listing, Refusal> {
        let mut attempt = 1;
        loop {
            match self.list_once(repo, revision) {
                Err(refusal) if refusal.is_passing && attempt < PATIENCE => {
                    std::thread::sleep(WAIT * 2u32.pow(attempt - 1));
                    attempt += 1;
                }
                listing => return listing,
            }
        }
    }

    fn list_once(&self, repo: &str, revision: &str) -> Result<Listing, Refusal> {
        let request = self.repository(repo, revision).info_request().query("blobs", "true");
        let request = request.config().http_status_as_error(false);
        let request = request.timeout_connect(Some(CONNECT));
        let request = request.timeout_global(Some(2 * self.silence)).build();
        let mut response = request.call().map_err(Refusal::passing)?;
        let status = response.status().as_u16();
        if status != 200 {
            let said = said(response.headers());
            let missing =
                format!("has no model repository {repo} with a revision {revision} (HTTP 404)");
            return Err(self.refusal(status, repo, &missing, said));
        }
        let body = response.body_mut().with_config().limit(LISTING_BYTES).read_to_string();
        let body = body.map_err(Refusal::passing)?;
        listing(&body).map_err(|why| Refusal::lasting(format!("its listing of {repo} {why}")))
    }

    /// Asks for a file from a byte on.
    pub(super) fn ask(
        &self,
        repo: &str,
        revision: &str,
        path: &str,
        from: u64,
    ) -> Result<Answer, Refusal> {
        let mut url = self.repository(repo, revision).url(path);
        let home = authority(&self.endpoint).map(str::to_owned);
        let (mut mark, mut commit, mut total) = (None, None, None);
        for _ in 0..REDIRECTS {
            let at_home = authority(&url) == home.as_deref();
            let mut request = self.agent.get(&url).header("Range", format!("bytes={from}-"));
            if let Some(token) = self.token.as_ref().filter(|_| at_home) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(Refusal::passing)?;
            let status = response.status().as_u16();
            let headers = response.headers();
            let header = |name: &str| {
                headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
            };
            let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308);
            // What the hub itself says counts; the store that it leads to has marks of its own.
            if at_home {
                let linked = header("x-linked-etag");
                let own = header("etag").filter(|_| !is_redirect);
                mark = linked.or(own).or(mark);
                commit = header("x-repo-commit").or(commit);
                total = header("x-linked-size").and_then(|text| text.parse().ok()).or(total);
            }
            if is_redirect {
                let to = header("location").unwrap_or_default();
                url = redirected(&url, &to).ok_or_else(|| {
                    Refusal::lasting(format!(
                        "it leads from {url} to {to:?}, which is not followed"
                    ))
                })?;
                continue;
            }
            if !matches!(status, 200 | 206 | 416) {
                let missing = format!("has no file {path} in {repo} at {revision} (HTTP 404)");
                return Err(self.refusal(status, repo, &missing, said(headers)));
            }
            let (from, total) = match status {
                206 => {
                    let range = header("content-range").unwrap_or_default();
                    let (from, whole) = content_range(&range).ok_or_else(|| {
                        Refusal::lasting(format!("it answered with the range {range:?}"))
                    })?;
                    (from, whole.or(total))
                }
                _ => (0, header("content-length").and_then(|n| n.parse().ok()).or(total)),
            };
            let total = if status == 416 { None } else { total };
            let body = Box::new(response.into_body().into_reader());
            let mark = mark.map(|mark| mark.trim_start_matches("W/").trim_matches('"').to_owned());
            return Ok(Answer { status, from, total, mark, commit, body });
        }
        Err(Refusal::lasting(format!("it leads on after {REDIRECTS} redirects")))
    }

    /// What an HTTP status other than success means.
    fn refusal(&self, status: u16, repo: &str, missing: &str, said: String) -> Refusal {
        let endpoint = &self.endpoint;
        let page = format!("{endpoint}/{repo}");
        let why = match (status, &self.token) {
            (401, None) => format!(
                "{endpoint} does not give {repo} without a token (HTTP 401): where the model's licence \
                 must be accepted, accept it at {page}, and set HF_TOKEN to a token of yours; a name \
                 that does not exist is answered like this too{said}"
            ),
            (401 | 403, Some(_)) => format!(
                "{endpoint} does not give {repo} for this token (HTTP {status}): accept the model's \
                 licence at {page}, or set HF_TOKEN to a token that may read it{said}"
            ),
            (403, None) => format!(
                "{endpoint} does not give {repo} (HTTP 403): accept the model's licence at {page}, and \
                 set HF_TOKEN to a token of yours{said}"
            ),
            (404, _) => format!("{endpoint} {missing}{said}"),
            _ => format!("{endpoint} answered with HTTP {status}{said}"),
        };
        let is_passing = matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504);
        Refusal { is_passing, ..Refusal::lasting(why) }
    }
}

/// What the hub says of a refusal, in brackets.
fn said(headers: &ureq::http::HeaderMap) -> String {
    let message = headers.get("x-error-message").and_then(|value| value.to_str().ok());
    message.map(|message| format!(" (it says: {})", plain(message))).unwrap_or_default()
}

/// The start of a body and the whole length of `bytes FROM-TO/TOTAL`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.trim().parse().ok()?, total.trim().parse().ok()))
}

/// `host:port` of an address.
fn authority(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let host = rest.split(['/', '?', '#']).next()?;
    (!host.is_empty()).then_some(host)
}

/// Where a redirect leads; not from a protected connection to an open one.
fn redirected(from: &str, to: &str) -> Option<String> {
    if let Some(path) = to.strip_prefix('/').filter(|path| !path.starts_with('/')) {
        let (scheme, _) = from.split_once("://")?;
        return Some(format!("{scheme}://{}/{path}", authority(from)?));
    }
    authority(to)?;
    let opens = from.starts_with("https://") && !to.starts_with("https://");
    (!opens).then(|| to.to_owned())
}

#[derive(Deserialize)]
struct JsonListing {
    sha: Option<String>,
    #[serde(default)]
    siblings: Vec<JsonFile>,
    #[serde(rename = "cardData")]
    card: Option<serde_json::Value>,
    #[serde(default)]
    tags: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct JsonFile {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<JsonLfs>,
}

#[derive(Deserialize)]
struct JsonLfs {
    sha256: Option<String>,
    size: Option<u64>,
}

/// Reads the hub's answer; the error goes on from "its listing".
fn listing(body: &str) -> Result<Listing, String> {
    let json: JsonListing =
        serde_json::from_str(body).map_err(|e| format!("cannot be read: {e}"))?;
    let commit = json.sha.filter(|sha| super::manifest::is_revision(sha));
    let commit = commit.ok_or("names no commit")?;
    let files = json.siblings.into_iter().map(|file| {
        let (sha256, size) = file.lfs.map_or((None, None), |lfs| (lfs.sha256, lfs.size));
        Listed { path: file.rfilename, bytes: size.or(file.size), sha256 }
    });
    let licence = json.card.as_ref().and_then(licence_of_card);
    let tagged = || {
        let tags = json.tags.iter().filter_map(|tag| tag.as_str());
        tags.filter_map(|tag| tag.strip_prefix("license:")).next().map(str::to_owned)
    };
    let licence = licence.or_else(tagged).map(|licence| plain(&licence));
    Ok(Listing { commit, licence, files: files.collect() })
}

/// What a model's card says of its licence: `other` stands for the one that is named beside it.
fn licence_of_card(card: &serde_json::Value) -> Option<String> {
    let text = |key: &str| {
        let value = card.get(key)?;
        let value = value.get(0).unwrap_or(value).as_str()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    match text("license")? {
        other if other == "other" => Some(text("license_name").unwrap_or(other)),
        licence => Some(licence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_on_but_not_out_of_protection() {
        let to = |from: &str, to: &str| redirected(from, to);
        assert_eq!(to("https://a/b/c", "/d?e").as_deref(), Some("https://a/d?e"));
        assert_eq!(to("http://a:1/b", "https://c/d").as_deref(), Some("https://c/d"));
        for there in ["", "//c/d", "http://c/d", "ftp://c", "d", "https://"] {
            assert_eq!(to("https://a/b", there), None, "{there}");
        }
        assert_eq!(authority("https://a:1/b?c"), Some("a:1"));
    }

    #[test]
    fn ranges_and_listings_are_read() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(content_range("bytes */10"), None);
        let listing = listing(
            r#"{"sha": "c0", "tags": ["x", "license:mit"], "siblings": [{"rfilename": "a", "size": 1},
               {"rfilename": "b", "size": 2, "lfs": {"sha256": "d", "size": 3}}],
               "cardData": {"license": "other", "license_name": "own"}}"#,
        )
        .unwrap();
        assert_eq!((listing.commit.as_str(), listing.licence.as_deref()), ("c0", Some("own")));
        assert_eq!(listing.files[1].bytes, Some(3));
        let tagged = super::listing(r#"{"sha": "c0", "tags": ["license:mit"]}"#).unwrap();
        assert_eq!(tagged.licence.as_deref(), Some("mit"));
        for broken in ["", "[]", "{}", r#"{"sha": "../x"}"#, r#"{"sha": 7}"#] {
            assert!(super::listing(broken).is_err(), "{broken}");
        }
    }
}
