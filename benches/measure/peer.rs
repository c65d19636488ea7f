//! llama.cpp as a process beside the bench: the prebuilt `xllamacpp` wheel, installed by pip into a
//! folder under `target/`, driven by `benches/peer.py` over pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use unsay::text::TokenId;

use super::stop;

const PEER: &str = "xllamacpp==2026.10.11549";

/// The process; it ends with this value.
pub struct Peer {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub version: String,
    pub loaded_seconds: f64,
}

/// What it measured of requests made at the same time.
pub struct Served {
    /// Seconds from the first request to the last answer.
    pub wall: f64,
    /// Of each request: prompt tokens and seconds, generated tokens and seconds.
    pub requests: Vec<[f64; 4]>,
}

impl Peer {
    /// Starts a server with `slots` slots of `context` positions each.
    pub fn start(model: &Path, threads: usize, slots: usize, context: usize) -> Self {
        let python = install();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new(python)
            .arg(root.join("benches/peer.py"))
            .arg(model)
            .args([threads, slots, slots * context].map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| stop(&format!("llama.cpp does not start: {e}")));
        let (Some(ask), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            stop("llama.cpp has no pipes")
        };
        let mut answers = BufReader::new(out);
        let loaded = read(&mut answers);
        Self {
            child,
            ask,
            answers,
            version: format!("xllamacpp {}", loaded["version"].as_str().unwrap_or("?")),
            loaded_seconds: loaded["loaded_seconds"].as_f64().unwrap_or(f64::NAN),
        }
    }

    /// Has it continue prompts, all at the same time, by `predict` tokens each.
    pub fn serve(&mut self, prompts: &[Vec<TokenId>], predict: usize) -> Served {
        let answer = self.ask(&json!({"prompts": prompts, "predict": predict}));
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let request = |timings: &Value| {
            ["prompt_n", "prompt_seconds", "predicted_n", "predicted_seconds"]
                .map(|name| number(&timings[name]))
        };
        let requests = answer["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
        Served { wall: number(&answer["wall"]), requests: requests.iter().map(request).collect() }
    }

    /// The log-probability of every id but the first, given those before it; None where its server
    /// does not tell it.
    pub fn logprobs(&mut self, ids: &[TokenId]) -> Vec<Option<f64>> {
        let answer = self.ask(&json!({"logprobs": ids}));
        let all = answer["logprobs"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().map(Value::as_f64).collect()
    }

    fn ask(&mut self, ask: &Value) -> Value {
        if let Err(e) = writeln!(self.ask, "{ask}").and_then(|()| self.ask.flush()) {
            stop(&format!("llama.cpp is gone: {e}"));
        }
        read(&mut self.answers)
    }

    /// Its peak resident memory in bytes.
    pub fn peak_memory(&self) -> u64 {
        super::peak_memory(&self.child.id().to_string())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(answers: &mut impl BufRead) -> Value {
    let mut line = String::new();
    match answers.read_line(&mut line) {
        Ok(n) if n > 0 => {
            serde_json::from_str(&line).unwrap_or_else(|e| stop(&format!("{line}: {e}")))
        }
        _ => stop("llama.cpp ended before it answered"),
    }
}

/// The Python of an environment under `target/` that has the peer.
fn install() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peer");
    let python = folder.join("bin/python");
    let has = |python: &Path| {
        let mut ask = Command::new(python);
        ask.args(["-c", "import xllamacpp"]).stderr(Stdio::null());
        ask.status().is_ok_and(|s| s.success())
    };
    if !has(&python) {
        println!("installing {PEER} into {}", folder.display());
        let run = |command: &mut Command| match command.status() {
            Ok(status) if status.success() => {}
            _ => stop("the peer could not be installed"),
        };
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        run(Command::new(&python).args(["-m", "pip", "install", "-q", PEER]));
    }
    python
}
