//! `unsay tasks`, `tasks show` and `tasks overlaps`: what can be asked, what is right, and which questions
//! stand in several data sets.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::arguments::{OverlapsArgs, ShowArgs, TasksArgs, TasksCommand};
use super::failure::{Failure, chain};
use super::inspect::print_json;
use super::output::{note, say};
use crate::tasks::{self, Item, Loaded, Selection, Shared, Task, TaskError};

/// `unsay tasks`
pub fn tasks(args: &TasksArgs) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(TasksCommand::Show(show)) => return self::show(show, args.data.as_deref()),
        Some(TasksCommand::Overlaps(overlaps)) => {
            return self::overlaps(overlaps, args.data.as_deref());
        }
        None => {}
    }
    let folder = args.data.clone().or_else(tasks::data_folder);
    if let Some(path) = folder.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(TaskError::NoPath { path: path.clone() }.into());
    }
    let found: Vec<_> =
        tasks::list().iter().map(|task| (task, read(task, folder.as_deref()))).collect();
    if args.json {
        let rows: Vec<_> = found.iter().map(|(task, loaded)| row(task, loaded)).collect();
        print_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (task, loaded) in &found {
        let count = match loaded {
            Ok(loaded) => counted(task, loaded),
            Err(TaskError::NotFound { .. } | TaskError::Unnamed { .. }) => "-".to_owned(),
            Err(_) => "damaged".to_owned(),
        };
        say!("{:<18} {count:>14}  {}", task.name, task.summary);
    }
    for (_, loaded) in &found {
        match loaded {
            Ok(loaded) => tell_damaged(loaded),
            Err(TaskError::NotFound { .. } | TaskError::Unnamed { .. }) => {}
            Err(error) => note!("{}", chain(error)),
        }
    }
    if folder.is_none() {
        note!(
            "hint: set {} to the folder of all data sets, or name a task's file with --data",
            tasks::DATA_FOLDER
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn read(task: &'static Task, folder: Option<&Path>) -> Result<Loaded, TaskError> {
    tasks::load_from(task, &tasks::find(task, folder)?)
}

/// `400 of 500`, or just the count where all are here or nobody knows how many there are.
fn counted(task: &Task, loaded: &Loaded) -> String {
    match task.whole {
        Some(whole) if whole != loaded.items.len() => {
            format!("{} of {whole}", loaded.items.len())
        }
        _ => loaded.items.len().to_string(),
    }
}

fn row(task: &Task, loaded: &Result<Loaded, TaskError>) -> serde_json::Value {
    let loaded = loaded.as_ref().ok();
    json!({
        "name": task.name,
        "summary": task.summary,
        "items": loaded.map(|loaded| loaded.items.len()),
        "whole": task.whole,
        "damaged": loaded.map(|loaded| loaded.damaged.iter().map(|d| d.line).collect::<Vec<_>>()),
        "path": loaded.map(|loaded| &loaded.path),
    })
}

/// Says which records could not be read.
pub fn tell_damaged(loaded: &Loaded) {
    const TOLD: usize = 5;
    for damaged in loaded.damaged.iter().take(TOLD) {
        note!("{}:{}: left out: {}", loaded.path.display(), damaged.line, damaged.why);
    }
    if loaded.damaged.len() > TOLD {
        note!("{}: {} more were left out", loaded.path.display(), loaded.damaged.len() - TOLD);
    }
}

/// `unsay tasks overlaps`
fn overlaps(args: &OverlapsArgs, folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let own = tasks::data_folder();
    let folder = folder.or(own.as_deref());
    let mut sets: Vec<(&'static str, Loaded)> = Vec::new();
    if args.names.is_empty() {
        for task in tasks::list() {
            match read(task, folder) {
                Ok(loaded) => sets.push((task.name, loaded)),
                Err(TaskError::NotFound { .. } | TaskError::Unnamed { .. }) => {}
                Err(error) => note!("{}", chain(&error)),
            }
        }
    }
    for name in &args.names {
        let task =
            tasks::named(name).ok_or_else(|| TaskError::Unknown { name: name.to_owned() })?;
        sets.push((task.name, read(task, folder)?));
    }
    if sets.is_empty() {
        return Err(Failure::missing("no data set is here")
            .hint(format!("set {} to the folder of all data sets", tasks::DATA_FOLDER)));
    }
    for (place, (name, set)) in sets.iter().enumerate() {
        let repeated = tasks::repeated(&set.items);
        if repeated > 0 && !args.json {
            say!("{name}: {repeated} of {} items ask what an earlier one asks", set.items.len());
        }
        for (other_name, other) in &sets[place + 1..] {
            let shared = tasks::overlap(&set.items, &other.items);
            if args.json {
                for Shared { question, ids } in shared {
                    let sets = [name, other_name];
                    say!("{}", json!({"question": question.to_string(), "sets": sets, "ids": ids}));
                }
            } else if let Some(first) = shared.first() {
                let [one, two] = &first.ids;
                say!(
                    "{name} ({}) and {other_name} ({}) share {} questions, the first {one} and {two}",
                    set.items.len(),
                    other.items.len(),
                    shared.len()
                );
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ShowArgs, folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let loaded = tasks::load(&args.name, args.data.as_deref().or(folder))?;
    tell_damaged(&loaded);
    let limit = if args.ids.is_empty() { Some(args.count) } else { None };
    let selection = Selection { limit, sample: args.sample, ids: args.ids.clone() };
    for item in selection.of(&args.name, loaded.items)? {
        if args.json {
            say!("{}", object(&item));
            continue;
        }
        say!("{}", item.id);
        say!("  {}", item.question.trim().replace('\n', "\n  "));
        say!("  right: {}", item.gold.shown().replace('\n', "\n  "));
        let labels: Vec<String> =
            item.labels.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        if !labels.is_empty() {
            say!("  {}", labels.join(" · "));
        }
        say!("");
    }
    Ok(ExitCode::SUCCESS)
}

fn object(item: &Item) -> serde_json::Value {
    let labels: serde_json::Map<String, serde_json::Value> =
        item.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "id": item.id,
        "question": item.question,
        "right": item.gold.shown(),
        "entry_point": item.entry_point,
        "labels": labels,
    })
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let message = chain(&error);
        match error {
            TaskError::NotFound { .. } => Failure::missing(message),
            TaskError::Unnamed { .. } => Failure::usage(message).hint("name it with --data"),
            _ => Failure::usage(message),
        }
    }
}
