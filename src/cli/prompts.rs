//! `unsay prompts export|render`.

use std::process::ExitCode;

use super::arguments::{PromptsArgs, PromptsCommand};
use super::failure::{Failure, chain};
use super::output::say;
use crate::llm::Prompts;

pub fn run(args: &PromptsArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        PromptsCommand::Export { folder } => {
            let written = open(None)?.export(folder).map_err(|e| Failure::usage(chain(&e)))?;
            say!("{} templates written to {}", written.len(), folder.display());
            say!("change them there and give `--prompts {}`", folder.display());
        }
        PromptsCommand::Render { name: None, prompts, .. } => {
            for name in open(prompts.as_deref())?.names() {
                say!("{name}");
            }
        }
        PromptsCommand::Render { name: Some(name), set, prompts } => {
            let mut values = Vec::new();
            for pair in set {
                let (key, value) = pair.split_once('=').ok_or_else(|| {
                    Failure::usage(format!("`{pair}` is not NAME=VALUE"))
                        .hint("write e.g. --set question='How many?'")
                })?;
                values.push((key.to_owned(), value.to_owned()));
            }
            let text = open(prompts.as_deref())?
                .render(name, minijinja::Value::from_pairs(values))
                .map_err(|e| Failure::usage(chain(&e)))?;
            say!("{text}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The built-in templates, or those with a folder's in their place.
pub fn open(folder: Option<&std::path::Path>) -> Result<Prompts, Failure> {
    match folder {
        None => Prompts::builtin().map_err(|e| Failure::stated(chain(&e))),
        Some(folder) => Prompts::from_dir(folder).map_err(|e| {
            Failure::usage(chain(&e))
                .hint("`unsay prompts export FOLDER` writes a folder to start from")
        }),
    }
}
