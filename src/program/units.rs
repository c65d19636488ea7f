//! Logic units of a Python program (RaLU, stage 1): the pieces of its control-flow graph that a
//! model judges one at a time.

mod render;
mod text;

use serde::Serialize;

pub use super::cfg::SyntaxError;
use super::cfg::{self, Code};
use text::{Draft, Item, Mark};

/// One logic unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// From 1, in the order in which units are judged.
    pub id: usize,
    /// What the unit is, in one word or two: `entry`, `branch`, `loop begin`, `loop end`, `block`, …
    pub label: String,
    /// The unit as a judge reads it.
    pub text: String,
    /// Source lines of its statements and of the headers that it opens (a loop's header also at
    /// its end), from 1, rising. A mark that only names where something ended adds none.
    pub lines: Vec<usize>,
}

/// A program read into units, with the places that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    pub units: Vec<Unit>,
    pub syntax_errors: Vec<SyntaxError>,
}

/// How a program is read into units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions<'a> {
    /// The function that a task asks for: a unit that is only a stub of it (models repeat the
    /// task's), with the real one after it, is left out.
    pub entry_point: Option<&'a str>,
    /// Divides a program that is one unit of more than nine lines into three (math programs).
    pub split_long_single_unit: bool,
}

/// The most rendered lines that a program's only unit may have before it is divided.
const LONG_UNIT: usize = 9;
/// Into how many parts a program is divided that has no structure to go by.
const PARTS: usize = 3;

/// Reads a program into logic units, depth-first through its control-flow graphs, the true side of
/// a branch before the false one.
///
/// Never fails: what is no Python is shown as it stands with its places in
/// `Reading::syntax_errors`, and a program without a graph comes as thirds of its lines. Comments
/// and docstrings are left out. No text gives no units.
pub fn read(source: &str, options: &ReadOptions) -> Reading {
    let program = match cfg::parse(source) {
        Ok(program) => program,
        Err(error) => return in_thirds(source, &error),
    };
    let mut drafts = render::program(&program);
    if let Some(name) = options.entry_point {
        render::remove_stubs(&program, &mut drafts, name);
    }
    if let ([only], true) = (drafts.as_slice(), options.split_long_single_unit)
        && only.rendered_lines() > LONG_UNIT
    {
        drafts = only.split(PARTS);
    }
    Reading { units: numbered(drafts), syntax_errors: program.syntax_errors }
}

/// The units of the line-by-line ablation: every line that is not blank, with its indentation.
pub fn by_line(source: &str) -> Vec<Unit> {
    let units = lines(source).enumerate().map(|(at, (line, text))| Unit {
        id: at + 1,
        label: "line".to_owned(),
        text: text.to_owned(),
        lines: vec![line],
    });
    units.collect()
}

/// The lines that are not blank, without white space at their ends, with their numbers.
fn lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let mut number = 1;
    let mut rest = Some(source);
    let all = std::iter::from_fn(move || {
        let text = rest?;
        let end = text.find(['\r', '\n']);
        let line = (number, text[..end.unwrap_or(text.len())].trim_end());
        rest = end.map(|end| {
            let width = if text[end..].starts_with("\r\n") { 2 } else { 1 };
            &text[end + width..]
        });
        number += 1;
        Some(line)
    });
    all.filter(|(_, line)| !line.is_empty())
}

/// A program without a graph: thirds of its lines.
fn in_thirds(source: &str, error: &cfg::GraphError) -> Reading {
    let items = lines(source).map(|(line, text)| {
        Item::new(Mark::Statement, Code { text: text.to_owned(), lines: vec![line] })
    });
    let whole = Draft { items: items.collect() };
    let (line, text) = match error {
        cfg::GraphError::TooDeep { line } => (*line, "blocks are nested too deeply".to_owned()),
        cfg::GraphError::Indentation { line } => (*line, "too many indentations".to_owned()),
        other => (1, other.to_string()),
    };
    let syntax_errors = vec![SyntaxError { line, column: 1, text }];
    Reading { units: numbered(whole.split(PARTS)), syntax_errors }
}

fn numbered(drafts: Vec<Draft>) -> Vec<Unit> {
    let units = drafts.into_iter().enumerate().map(|(at, draft)| Unit {
        id: at + 1,
        label: draft.label().to_owned(),
        text: draft.text(),
        lines: draft.lines(),
    });
    units.collect()
}
