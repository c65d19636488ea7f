//! `unsay doctor`: what this machine has and lacks.

use std::collections::BTreeMap;
use std::process::ExitCode;

use super::arguments::{DEFAULT_MODEL, DoctorArgs};
use super::failure::{Failure, chain};
use super::models::size;
use super::output::say;
use super::{recommend, setup};
use crate::engine::plan::{Machine, MemorySize};
use crate::llm::{HostError, HostModel, HostOptions, Hosting};
use crate::program::sandbox::{LayerState, Sandbox};
use crate::store::{self, Cache, Package, StoreError};

/// Prints it; exit code 3 where something is missing that solving needs.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if args.recommend {
        return recommend::recommend(args.memory);
    }
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
    let mut left = 0;
    for (name, package) in packages(&cache)? {
        match package.and_then(|package| Ok((package.is_here()?, package))) {
            Ok((true, _)) => {
                say!("model      {name}: here");
                // What hosting it with the defaults would take.
                match memory_of(&name, &cache) {
                    Ok(plan) => say!("           {plan}"),
                    Err(error) => say!("           {}", chain(&error)),
                }
            }
            Ok((false, package)) if name == DEFAULT_MODEL => {
                let bytes = size(&package).unwrap_or_default();
                say!("model      {name}: not pulled; `unsay pull {name}` fetches {bytes}");
            }
            Ok((false, _)) => left += 1,
            Err(error) => say!("model      {name}: {}", chain(&error)),
        }
    }
    say!("           {left} more can be pulled (`unsay models`; `unsay doctor --recommend`)");
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

/// Every variant of every manifest, and what was pulled from the hub.
fn packages(cache: &Cache) -> Result<BTreeMap<String, Result<Package, StoreError>>, StoreError> {
    let mut all = store::pulled_from_hub(cache)?;
    for (name, manifest) in store::manifests(cache)? {
        for variant in &manifest.variants {
            match Package::of_manifest(&manifest, Some(&variant.quantisation), cache) {
                Ok(package) => all.insert(package.name.clone(), Ok(package)),
                Err(error) => all.insert(format!("{name}:{}", variant.quantisation), Err(error)),
            };
        }
    }
    Ok(all)
}

fn memory_of(name: &str, cache: &Cache) -> Result<String, HostError> {
    let model = HostModel::open(name, cache)?;
    Ok(Hosting::plan(vec![model], HostOptions::default())?.memory().line())
}
