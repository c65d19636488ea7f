//! Programs of public data sets: nothing is lost, told twice or taken for an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use super::plain;
use crate::support::shared;
use unsay::program::cfg::{self, Role, StatementKind};

/// The programs under `data/humanevalplus` and `data/mbppplus`: canonical solutions, and (false)
/// what models answered.
fn programs() -> Vec<(String, bool)> {
    let mut programs = Vec::new();
    let Some(shared) = shared() else { return programs };
    for set in ["humanevalplus", "mbppplus"] {
        let Ok(folder) = std::fs::read_dir(shared.join("data").join(set)) else { continue };
        let mut paths: Vec<PathBuf> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.to_string_lossy().into_owned();
            let mut text = String::new();
            if name.ends_with(".jsonl.gz") {
                let file = File::open(&path).unwrap();
                flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
            } else if name.ends_with(".jsonl") {
                text = std::fs::read_to_string(&path).unwrap();
            }
            for line in text.lines() {
                let field = |name: &str| field(line, name);
                // The prompts of MBPP are prose; those of HumanEval begin the function.
                let prompt = if set == "mbppplus" { String::new() } else { field("prompt") };
                let (canonical, answer) = (field("canonical_solution"), field("solution"));
                if !canonical.is_empty() {
                    programs.push((prompt + &canonical, true));
                } else if !answer.is_empty() {
                    programs.push((answer, false));
                }
            }
        }
    }
    programs
}

/// A string of a row, empty where the row has none. The rows hold `Infinity`, which is no JSON, so
/// only the string itself is read.
fn field(row: &str, name: &str) -> String {
    let key = format!("\"{name}\": ");
    let Some(at) = row.find(&key) else { return String::new() };
    let value = &row[at + key.len()..];
    serde_json::Deserializer::from_str(value).into_iter().next().unwrap().unwrap()
}

#[test]
fn programs_of_data_sets_are_told_once() {
    let programs = programs();
    if programs.is_empty() {
        println!("SKIPPED: neither humanevalplus nor mbppplus under shared/data");
        return;
    }
    let (mut read, mut statements) = (0, 0);
    for (source, canonical) in &programs {
        let reading = plain(source);
        assert_eq!(reading, plain(source), "not deterministic");
        assert!(!reading.units.is_empty(), "{source}");
        // What models wrote may be cut off; it must be told all the same.
        let errors = &reading.syntax_errors;
        assert!(!canonical || errors.is_empty(), "{source}{errors:?}");
        read += usize::from(errors.is_empty());
        statements += told_once(source);
    }
    println!("{} programs, {read} without errors, {statements} statements", programs.len());
}

/// Asserts that every statement of the graphs is in one unit, that the headers are where they
/// must be, and that statements come in the order of the source; the number of statements.
fn told_once(source: &str) -> usize {
    let reading = plain(source);
    let program = cfg::parse(source).unwrap();
    let all: String = reading.units.iter().map(|unit| format!("{}\n", unit.text)).collect();
    let mut expected: Vec<(usize, String)> = Vec::new();
    let mut marks: BTreeMap<String, usize> = BTreeMap::new();
    for graph in &program.graphs {
        for block in &graph.blocks {
            for statement in &block.statements {
                if !matches!(statement.kind, StatementKind::Define(_)) {
                    let code = &statement.code;
                    expected.push((code.lines[0], code.text.clone()));
                }
            }
            if let Role::Loop { header } = &block.role {
                for mark in ["#LOOP BEGIN#", "#LOOP END#"] {
                    *marks.entry(format!("{mark} `{}`\n", header.text)).or_default() += 1;
                }
            }
            if let Role::Branch { condition } = &block.role {
                let mark = format!("#BRANCH# `{}` holds\n", condition.text);
                *marks.entry(mark).or_default() += 1;
            }
        }
    }
    for (mark, count) in marks {
        assert_eq!(all.matches(&mark).count(), count, "{mark}{source}");
    }
    expected.sort_by_key(|(line, _)| *line);
    let mut rest = all.as_str();
    for (line, text) in &expected {
        let at = rest.find(text.as_str());
        let at = at.unwrap_or_else(|| panic!("line {line} `{text}` is not told\n{source}\n{all}"));
        rest = &rest[at + text.len()..];
    }
    expected.len()
}
