//! Prefill and decode beside llama.cpp: the same file, the same threads, in turn; load time and
//! peak memory of both. Ratios are unsay / llama.cpp for speeds (above 1: unsay is faster).
//!
//! The peer is the prebuilt `xllamacpp` wheel, installed by pip into a folder under `target/`.

mod measure;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use measure::{Subject, median, record, stop};
use serde_json::{Value, json};
use unsay::engine::{EngineOptions, Sampling, Tag};
use unsay::text::TokenId;

const PEER: &str = "xllamacpp==2026.10.11549";
const PROMPT: usize = 512;
const PREDICT: usize = 128;
const ROUNDS: usize = 5;

/// Tokens per second.
#[derive(Clone, Copy)]
struct Speed {
    prefill: f64,
    decode: f64,
}

fn main() {
    let subject = measure::host(EngineOptions::default());
    let mut peer = Peer::start();
    let prompt: Vec<TokenId> = prompt(&subject);
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for round in 0..=ROUNDS {
        let a = measure_ours(&subject, &prompt);
        let b = peer.measure(&prompt);
        // The first round warms both up.
        if round == 0 {
            continue;
        }
        println!(
            "round {round}: prefill {:.1} against {:.1}, decode {:.1} against {:.1} tok/s",
            a.prefill, b.prefill, a.decode, b.decode
        );
        ours.push(a);
        theirs.push(b);
    }
    let facts = |pick: fn(&Speed) -> f64| {
        let a: Vec<f64> = ours.iter().map(pick).collect();
        let b: Vec<f64> = theirs.iter().map(pick).collect();
        let ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a / b).collect();
        json!({
            "unit": "tokens/s",
            "unsay": median(&a),
            "llama.cpp": median(&b),
            "ratio": median(&ratios),
            "ratios": ratios,
            "target": null,
            "rounds": ROUNDS,
            "peer": peer.version,
            "prompt_tokens": PROMPT,
            "generated_tokens": PREDICT,
        })
    };
    record("prefill", facts(|s| s.prefill));
    record("decode", facts(|s| s.decode));
    let loaded = json!({
        "unit": "s", "unsay": subject.load_seconds, "llama.cpp": peer.loaded_seconds,
        "ratio": subject.load_seconds / peer.loaded_seconds, "target": null, "peer": peer.version,
        "note": "once each; llama.cpp's figure includes its warm-up pass and its server's start",
    });
    record("load", loaded);
    let (mine, its) = (measure::peak_memory("self"), peer.peak_memory());
    let memory = json!({
        "unit": "bytes of peak resident memory, the mapped file included", "unsay": mine,
        "llama.cpp": its, "ratio": mine as f64 / its as f64, "target": null, "peer": peer.version,
        "note": "the whole process; llama.cpp's holds a Python interpreter too",
    });
    record("memory", memory);
}

/// Ids of ordinary English text, so that both sides do the same work.
fn prompt(subject: &Subject) -> Vec<TokenId> {
    let line = "A river runs past the old mill, and the miller counts the sacks of flour. ";
    let ids = subject.tokenizer.encode(&line.repeat(60)).unwrap_or_else(|e| stop(&e.to_string()));
    if ids.len() < PROMPT {
        stop("the prompt is too short");
    }
    ids[..PROMPT].to_vec()
}

fn measure_ours(subject: &Subject, prompt: &[TokenId]) -> Speed {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|e| stop(&e.to_string()));
    // Ends of text are drawn but rarely greedily; the bias keeps the length the same.
    let bias = (0..3).map(|id| (TokenId(id), f32::NEG_INFINITY)).collect::<Vec<_>>();
    let bias: Vec<_> = bias.into_iter().map(|(id, _)| (id, -1e9)).collect();
    let one = Sampling { max_tokens: 1, bias: bias.clone(), ..Sampling::default() };
    let many = Sampling { max_tokens: PREDICT, bias, ..Sampling::default() };
    let tag = Tag::new("bench", 1);
    let run = async {
        let mut session = subject.engine.open(measure::MODEL, None).await?;
        session.append(prompt).await?;
        let begun = Instant::now();
        let first = session.generate(&one, &tag).await?.collect().await?;
        let prefill = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let rest = session.generate(&many, &tag).await?.collect().await?;
        let decode = begun.elapsed().as_secs_f64();
        assert_eq!((first.tokens.len(), rest.tokens.len()), (1, PREDICT));
        Ok::<Speed, unsay::engine::EngineError>(Speed {
            prefill: PROMPT as f64 / prefill,
            decode: PREDICT as f64 / decode,
        })
    };
    runtime.block_on(run).unwrap_or_else(|e| stop(&e.to_string()))
}

struct Peer {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    version: String,
    loaded_seconds: f64,
}

impl Peer {
    fn start() -> Self {
        let python = install();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut child = Command::new(python)
            .arg(root.join("benches/peer.py"))
            .arg(measure::model_file())
            .arg(measure::threads().to_string())
            .arg("1024")
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

    fn measure(&mut self, prompt: &[TokenId]) -> Speed {
        let ask = json!({"prompt": prompt, "predict": PREDICT});
        if let Err(e) = writeln!(self.ask, "{ask}").and_then(|()| self.ask.flush()) {
            stop(&format!("llama.cpp is gone: {e}"));
        }
        let answer = read(&mut self.answers);
        let number = |name: &str| answer[name].as_f64().unwrap_or(f64::NAN);
        Speed {
            prefill: number("prefill_tokens") / number("prefill_seconds"),
            decode: number("decode_tokens") / number("decode_seconds"),
        }
    }

    fn peak_memory(&self) -> u64 {
        measure::peak_memory(&self.child.id().to_string())
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
