//! `unsay doctor`: what this machine has and lacks.

use std::process::ExitCode;

use super::failure::{Failure, chain};
use super::models::megabytes;
use super::output::say;
use crate::program::sandbox::{LayerState, Options as SandboxOptions, Sandbox};
use crate::store::{self, Cache};

/// Prints it; exit code 3 where something is missing that solving needs.
pub fn doctor() -> Result<ExitCode, Failure> {
    say!("unsay {}", env!("CARGO_PKG_VERSION"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    say!("cpu        {threads} threads, {} kernels", crate::device::cpu::Tier::detect().name());
    say!("device     cpu (this build has no other)");
    if let Some((total, free)) = memory() {
        say!("memory     {} in all, {} free", megabytes(total), megabytes(free));
    }
    let cache = Cache::locate()?;
    say!("cache      {}", cache.root().display());
    for (name, manifest) in store::manifests(&cache)? {
        let state = if manifest.file_in(&cache).is_file() {
            "here".to_owned()
        } else {
            format!("not pulled; `unsay pull {name}` fetches {}", megabytes(manifest.bytes))
        };
        say!("model      {name}: {state}");
    }
    match Sandbox::find(SandboxOptions::default()) {
        Ok(sandbox) => {
            let interpreter = sandbox.interpreter();
            say!("python     {} ({})", interpreter.executable.display(), interpreter.version);
            for layer in sandbox.layers() {
                let state = match &layer.state {
                    LayerState::Active { detail } => format!("active: {detail}"),
                    LayerState::Missing { why } => format!("missing (others hold): {why}"),
                };
                say!("sandbox    {}: {state}", layer.name);
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            say!("sandbox    missing: {}", chain(&error));
            say!("           programs that a model wrote are run nowhere else, so RaLU cannot run");
            Ok(ExitCode::from(3))
        }
    }
}

/// Bytes of memory in all and free, where the system tells.
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Some((field("MemTotal:")?, field("MemAvailable:")?))
}
