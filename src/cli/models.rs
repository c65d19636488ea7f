//! `unsay models` and `unsay pull`.

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

use super::arguments::PullArgs;
use super::failure::{Failure, chain};
use super::output::{note, say};
use crate::store::{self, Cache, Manifest, Progress, StoreError};

/// The models that are known, and which of them are here.
pub fn list() -> Result<ExitCode, Failure> {
    let cache = Cache::locate()?;
    let manifests = store::manifests(&cache)?;
    let wide = manifests.keys().map(String::len).max().unwrap_or(0);
    for (name, manifest) in &manifests {
        let here = match manifest.is_in(&cache) {
            Ok(true) => "here",
            Ok(false) => "not pulled",
            Err(_) => "unreadable",
        };
        say!(
            "{name:wide$}  {here:<10}  {:>8}  {}  {}",
            megabytes(manifest.bytes),
            manifest.licence,
            manifest.display_name
        );
    }
    say!("\nany .gguf file, or a folder with config.json and *.safetensors, works as --model too");
    Ok(ExitCode::SUCCESS)
}

/// Fetches a model, or says that it is here.
pub fn pull(args: &PullArgs) -> Result<ExitCode, Failure> {
    let cache = Cache::locate()?;
    let manifests = store::manifests(&cache)?;
    let Some(manifest) = manifests.get(&args.name) else {
        let known = manifests.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(Failure::usage(format!("no model is called `{}`", args.name))
            .hint(format!("known models: {known}")));
    };
    if manifest.is_in(&cache)? && args.verify {
        store::verify(manifest, &cache)?;
        say!("{} is whole: {}", args.name, manifest.file_in(&cache).display());
        return Ok(ExitCode::SUCCESS);
    }
    let pulled = with_progress(manifest, &cache)?;
    match pulled.from {
        Some(source) => say!("{} from {source}: {}", args.name, pulled.path.display()),
        None => say!("{} is here: {}", args.name, pulled.path.display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn with_progress(manifest: &Manifest, cache: &Cache) -> Result<store::Pulled, StoreError> {
    // Drawn on standard error, and only where that is a terminal.
    let bar = ProgressBar::new(manifest.bytes);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {msg}") {
        bar.set_style(style);
    }
    let result = store::pull(manifest, cache, &mut |progress| match progress {
        Progress::Waiting => note_beside(&bar, "waiting for another pull of this model"),
        Progress::Replacing { why } => note_beside(&bar, &format!("the file that is here {why}")),
        Progress::Asking { source } => note_beside(&bar, &format!("asking {source}")),
        Progress::Bytes { done, .. } => bar.set_position(done),
        Progress::Failed { source, reason } => note_beside(&bar, &format!("{source}: {reason}")),
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
