//! `unsay doctor --recommend`: which models fit this machine, or another one.

use std::process::{Command, ExitCode, Stdio};

use super::failure::Failure;
use super::output::say;
use crate::engine::plan::{Machine, MemorySize};
use crate::llm::preset::{self, Choice, GENERATOR_CONTEXT, Preset, VERIFIER_CONTEXT};
use crate::model::Quantise;
use crate::store::{self, Cache, Package, VerifierFormat};

/// Prints the preset for an amount of memory; without one, for the GPU's and for the machine's.
pub fn recommend(asked: Option<MemorySize>) -> Result<ExitCode, Failure> {
    let cache = Cache::locate()?;
    let mut places: Vec<(String, u64)> = Vec::new();
    match asked {
        Some(size) => places.push(("what --for says".into(), size.0)),
        None => {
            if let Some((name, bytes)) = gpu() {
                places.push((format!("{name} (this build computes on the processor)"), bytes));
            }
            if let Some(machine) = Machine::read() {
                places.push(("the memory of this machine".into(), machine.total));
            }
        }
    }
    if places.is_empty() {
        return Err(Failure::missing("the system does not say how much memory there is")
            .hint("say it: unsay doctor --recommend --for 24GB"));
    }
    let manifests = store::manifests(&cache)?;
    let mut fits = false;
    for (place, bytes) in places {
        say!("preset for {}: {place}", MemorySize(bytes));
        match preset::recommend(&manifests, bytes)? {
            Some(preset) => {
                fits = true;
                tell(&preset, &cache)?;
            }
            None => say!("  no generator of a manifest fits beside a verifier\n"),
        }
    }
    say!(
        "assumed: one dialogue of full length each, {GENERATOR_CONTEXT} positions for the generator and"
    );
    say!(
        "{VERIFIER_CONTEXT} for the verifier, keys and values in f16; the verifier is no larger than the generator;"
    );
    say!(
        "one part in sixteen is kept for others. Weights are estimated by the sizes of the manifests, and"
    );
    say!(
        "planned as the engine plans on the processor. Verifiers are not hosted by this build yet: memory is"
    );
    say!("set aside for one.");
    Ok(ExitCode::from(if fits { 0 } else { 1 }))
}

fn tell(preset: &Preset, cache: &Cache) -> Result<(), Failure> {
    line("generator", &preset.generator, cache)?;
    line("verifier", &preset.verifier, cache)?;
    for row in preset.plan.to_string().lines() {
        say!("  {row}");
    }
    for choice in [&preset.generator, &preset.verifier] {
        say!("  unsay pull {}", choice.name);
    }
    say!("");
    Ok(())
}

fn line(role: &str, choice: &Choice, cache: &Cache) -> Result<(), Failure> {
    let package = Package::find(&choice.name, cache)?;
    let format = package.as_ref().and_then(|package| package.manifest.verifier_format);
    let quantisation = package.map(|package| package.variant.quantisation).unwrap_or_default();
    let quantise = match choice.quantise {
        None => String::new(),
        Some(Quantise::Q8_0) => ", loaded with --quantise q8_0".into(),
        Some(Quantise::Q6K) => ", loaded with --quantise q6_k".into(),
        Some(Quantise::Q4K) => ", loaded with --quantise q4_k".into(),
    };
    let format = match format {
        None => "",
        Some(VerifierFormat::PlusMinus) => ", judges by two tokens",
        Some(VerifierFormat::TwoClass) => ", judges by two classes",
        Some(VerifierFormat::ValueHead) => ", judges by one number",
    };
    let billions = choice.parameters as f64 / 1e9;
    let weights = choice.weights() as f64 / 1e9;
    say!(
        "  {role:9}  {}  {billions:.1} B parameters, {quantisation}{quantise}: about {weights:.1} GB of \
         weights{format}",
        choice.name
    );
    Ok(())
}

/// The name and the memory of the largest NVIDIA card, as its driver's tool tells them.
fn gpu() -> Option<(String, u64)> {
    let asked = Command::new("nvidia-smi")
        .args(["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    largest(&String::from_utf8_lossy(&asked.stdout))
}

/// The largest card of lines `NAME, MIB`.
fn largest(lines: &str) -> Option<(String, u64)> {
    let cards = lines.lines().filter_map(|line| {
        let (name, mebibytes) = line.rsplit_once(',')?;
        let bytes = mebibytes.trim().parse::<u64>().ok()?.checked_mul(1 << 20)?;
        let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
        Some((name, bytes))
    });
    cards.max_by_key(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_card_counts_and_nonsense_does_not() {
        let two = "NVIDIA GeForce RTX 4090, 24564\nNVIDIA T4, 15360\n";
        assert_eq!(largest(two), Some(("NVIDIA GeForce RTX 4090".into(), 24564 << 20)));
        for nonsense in ["", "No devices were found", "a, b", "a, [N/A]", "a, 99999999999999999999"]
        {
            assert_eq!(largest(nonsense), None, "{nonsense}");
        }
    }
}
