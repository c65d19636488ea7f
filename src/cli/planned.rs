//! `unsay eval --plan FILE.toml`: a run asked for by a file. Its keys are the names of the command's own options,
//! and become those options before the command line is read, so that a value is checked, explained and
//! defaulted in one place. What is said on the command line as well counts before the file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use toml::Value;

use super::arguments::Arguments;
use super::failure::Failure;

/// The words of a command line, with those that a plan file stands for.
pub fn expanded(words: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some(at) = command(&words).filter(|&at| words[at] == "eval") else { return Ok(words) };
    let Some(path) = file(&words[at + 1..]) else { return Ok(words) };
    let options = options(&path, &words[at + 1..])?;
    let (before, after) = words.split_at(at + 1);
    Ok([before, &options, after].concat())
}

/// Where the subcommand stands.
fn command(words: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.to_str() {
            Some("--color") => at += 2,
            Some(word) if word.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// The value of `--plan`.
fn file(words: &[OsString]) -> Option<PathBuf> {
    for (at, word) in words.iter().enumerate() {
        if word == "--plan" {
            return words.get(at + 1).map(PathBuf::from);
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--plan=")) {
            return Some(PathBuf::from(path));
        }
    }
    None
}

/// The options that a file stands for, without those that are given beside it.
fn options(path: &Path, given: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let wrong = |why: String| Failure::usage(format!("the plan {} {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    let table: toml::Table =
        text.parse().map_err(|e: toml::de::Error| wrong(format!("is no TOML: {e}")))?;
    let known = known();
    let mut options = Vec::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        if !known.contains(&name) {
            return Err(wrong(format!("has the key `{key}`, which `unsay eval` does not know"))
                .hint(format!("it knows {}", known.join(", "))));
        }
        let flag = format!("--{name}");
        let is_given = |word: &OsString| {
            let rest = word.to_str().and_then(|word| word.strip_prefix(&flag));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        if given.iter().any(is_given) {
            continue;
        }
        match value {
            Value::Boolean(true) => options.push(flag.into()),
            Value::Boolean(false) => {}
            value => {
                let text = plain(&value).ok_or_else(|| {
                    wrong(format!("has a `{key}` that is no value or list of values"))
                })?;
                options.push(format!("{flag}={text}").into());
            }
        }
    }
    Ok(options)
}

/// The command's own options, by name.
fn known() -> Vec<String> {
    let command = Arguments::command();
    let eval = command.find_subcommand("eval").into_iter();
    let names = eval.flat_map(clap::Command::get_arguments).filter_map(clap::Arg::get_long);
    names.filter(|name| !["plan", "help", "color"].contains(name)).map(str::to_owned).collect()
}

/// A value as it stands on a command line; a list with commas.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Array(values) => {
            let values: Option<Vec<String>> = values
                .iter()
                .map(|value| match value {
                    Value::Array(_) => None,
                    value => plain(value),
                })
                .collect();
            values.map(|values| values.join(","))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(plan: &str, beside: &[&str]) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, plan).unwrap();
        let mut words: Vec<OsString> = vec!["unsay".into(), "--color".into(), "never".into()];
        words.extend(["eval".into(), "--plan".into(), path.into_os_string()]);
        words.extend(beside.iter().map(OsString::from));
        let words = expanded(words).map_err(|failure| failure.to_string())?;
        let words: Vec<String> =
            words.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        let plan = words.iter().position(|word| word == "--plan").unwrap();
        Ok(words[4..plan].to_vec())
    }

    #[test]
    fn keys_are_options_and_the_command_line_counts_before_them() {
        let plan = "task = \"addsub\"\nmethods = [\"direct\", \"ralu:units=line\"]\nseeds = 3\n\
                    first_seed = 7\ntemperature = 0.5\nno-traces = true\nmerge = false\nids = [1, 2]\n";
        let all = read(plan, &[]).unwrap();
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(
            sorted,
            [
                "--first-seed=7",
                "--ids=1,2",
                "--methods=direct,ralu:units=line",
                "--no-traces",
                "--seeds=3",
                "--task=addsub",
                "--temperature=0.5",
            ]
        );
        let some = read(plan, &["--seeds=1", "--task", "gsm8k", "--methods", "cot"]).unwrap();
        assert!(
            !some.iter().any(|word| word.starts_with("--seeds") || word.starts_with("--methods"))
        );
        assert!(some.contains(&"--first-seed=7".to_owned()));
    }

    #[test]
    fn what_is_no_option_is_refused_by_name() {
        for (plan, told) in [
            ("tasks = \"addsub\"", "the key `tasks`"),
            ("plan = \"x\"", "the key `plan`"),
            ("methods = [[\"a\"]]", "`methods` that is no value"),
            ("[task]\nname = \"x\"", "`task` that is no value"),
            ("task = ", "is no TOML"),
        ] {
            let said = read(plan, &[]).unwrap_err();
            assert!(said.contains(told), "{plan}: {said}");
        }
        assert!(read("tasks = 1", &[]).unwrap_err().contains("max-tokens"));
    }

    #[test]
    fn other_commands_are_left_as_they_are() {
        let words: Vec<OsString> = ["unsay", "solve", "--plan", "x"].map(OsString::from).into();
        assert_eq!(expanded(words.clone()).ok(), Some(words));
        assert_eq!(expanded(vec!["unsay".into()]).ok(), Some(vec!["unsay".into()]));
    }
}
