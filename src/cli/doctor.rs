//! `unsay doctor`: what this machine has and lacks.

use std::process::ExitCode;

use super::arguments::DoctorArgs;
use super::failure::{Failure, chain};
use super::models::megabytes;
use super::output::say;
use super::setup;
use crate::engine::plan::{Machine, MemorySize};
use crate::llm::{HostError, HostModel, HostOptions, Hosting};
use crate::program::sandbox::{LayerState, Sandbox};
use crate::store::{self, Cache};

/// Prints it; exit code 3 where something is missing that solving needs.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    say!("unsay {}", env!("CARGO_PKG_VERSION"));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    say!("cpu        {threads} threads, {} kernels", crate::device::cpu::Tier::detect().name());
    say!("device     cpu (this build has no other)");
    if let Some(machine) = Machine::read() {
        let (total, free) = (MemorySize(machine.total), MemorySize(machine.free));
        match &machine.group {
            None => say!("memory     {total} in all, {free} free"),
            Some(group) => say!("memory     {total} in all, {free} left of {}", group.display()),
        }
    }
    let cache = Cache::locate()?;
    say!("cache      {}", cache.root().display());
    for (name, manifest) in store::manifests(&cache)? {
        match manifest.is_in(&cache) {
            Ok(true) => {
                say!("model      {name}: here");
                // What hosting it with the defaults would take.
                match memory_of(&name, &cache) {
                    Ok(plan) => say!("           {plan}"),
                    Err(error) => say!("           {}", chain(&error)),
                }
            }
            Ok(false) => {
                let bytes = megabytes(manifest.bytes);
                say!("model      {name}: not pulled; `unsay pull {name}` fetches {bytes}");
            }
            Err(error) => say!("model      {name}: {}", chain(&error)),
        }
    }
    match setup::packages(&cache) {
        Some(versions) => say!("packages   {versions}"),
        None => say!(
            "packages   z3-solver, numpy, python-constraint: not here; `unsay setup` installs them"
        ),
    }
    match Sandbox::find(setup::sandbox_options(&args.sandbox)?) {
        Ok(sandbox) => {
            let interpreter = sandbox.interpreter();
            say!("python     {} ({})", interpreter.executable.display(), interpreter.version);
            for layer in sandbox.layers() {
                let state = match &layer.state {
                    LayerState::Active { detail } => format!("active: {detail}"),
                    LayerState::Missing { why } if layer.required => {
                        format!("MISSING and left out as asked: {why}")
                    }
                    LayerState::Missing { why } => format!("missing (others hold): {why}"),
                };
                say!("sandbox    {}: {state}", layer.name);
            }
            if let Some(leaks) = sandbox.leaks() {
                say!("sandbox    programs can do what they should not: {leaks}");
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

fn memory_of(name: &str, cache: &Cache) -> Result<String, HostError> {
    let model = HostModel::open(name, cache)?;
    Ok(Hosting::plan(vec![model], HostOptions::default())?.memory().line())
}
