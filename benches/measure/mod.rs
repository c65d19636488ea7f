//! What the benches share: the model under measurement, medians, and the result files.

#[allow(dead_code)]
pub mod models;
#[allow(dead_code)]
pub mod peer;
#[allow(dead_code)]
pub mod speed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use unsay::engine::{Engine, EngineOptions};
use unsay::llm::{self, Host, HostModel, HostOptions};
use unsay::store::{self, Cache};
use unsay::text::Tokenizer;

pub const MODEL: &str = "smollm2-135m-instruct";

/// Threads on either side of a comparison.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The default model, hosted alone.
#[allow(dead_code)]
pub struct Subject {
    pub engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    pub host: Host,
    pub load_seconds: f64,
}

/// Hosts the default model, or ends with what to do.
#[allow(dead_code)]
pub fn host(options: EngineOptions) -> Subject {
    host_file(&model_file(), options)
}

/// Hosts the model of a file, under the default model's name.
#[allow(dead_code)]
pub fn host_file(path: &Path, options: EngineOptions) -> Subject {
    let cache = Cache::locate().unwrap_or_else(|e| stop(&e.to_string()));
    let path = path.to_str().unwrap_or_else(|| stop("the path is not text"));
    let mut model = HostModel::open(path, &cache).unwrap_or_else(|e| stop(&e.to_string()));
    model.name = MODEL.to_owned();
    let options = HostOptions { threads: threads(), engine: options, ..HostOptions::default() };
    let host = llm::host(vec![model], options).unwrap_or_else(|e| stop(&e.to_string()));
    Subject {
        engine: host.engine.clone(),
        tokenizer: Arc::clone(&host.models[0].tokenizer),
        load_seconds: host.load_seconds,
        host,
    }
}

/// Path of the default model's file.
#[allow(dead_code)]
pub fn model_file() -> PathBuf {
    let cache = Cache::locate().unwrap_or_else(|e| stop(&e.to_string()));
    store::open(MODEL, &cache).unwrap_or_else(|e| stop(&e.to_string())).path().to_owned()
}

/// Ends the bench with a reason.
pub fn stop(why: &str) -> ! {
    eprintln!("the bench cannot run: {why}");
    std::process::exit(3);
}

/// The middle value (mean of the two middle ones).
#[allow(dead_code)]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 { f64::NAN } else { (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0 }
}

/// Peak resident memory of a process in bytes, as the kernel counts it.
#[allow(dead_code)]
pub fn peak_memory(pid: &str) -> u64 {
    memory_field(pid, "VmHWM:")
}

/// Resident memory of a process in bytes.
#[allow(dead_code)]
pub fn resident(pid: &str) -> u64 {
    memory_field(pid, "VmRSS:")
}

fn memory_field(pid: &str, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with(name));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Resident memory of this process in bytes.
#[allow(dead_code)]
pub fn resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Writes `benches/results/<name>.json`, the machine named in it.
pub fn record(name: &str, facts: Value) {
    let mut facts = facts;
    facts["machine"] = json!(machine());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results");
    let path = folder.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(&facts).unwrap_or_default() + "\n";
    if let Err(e) = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, text)) {
        stop(&format!("{}: {e}", path.display()));
    }
    println!("wrote {}", path.display());
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("");
    format!("{}, {} threads", name.trim_start_matches([' ', '\t', ':']), threads())
}
