//! Stage 1: the model writes a program, and the program is read into units.

use crate::answer::Kind;
use crate::llm::{Event, Reply, Role};
use crate::program::units::{ReadOptions, Reading, read};

use super::super::Failure;
use super::super::solving::{Solving, program_of};
use super::super::turn::Talk;
use super::{PROGRAM_TOKENS, UnitKind};

/// Has the program written; answers with its units as a judge reads them, at least one.
pub async fn write(solving: &mut Solving<'_>, kind: UnitKind) -> Result<Vec<String>, Failure> {
    solving.stage("program");
    let prompts = solving.context.prompts.clone();
    let system = match solving.problem.kind {
        Kind::Math => prompts.render("ralu-program-math-system", ())?,
        Kind::Code => prompts.render("ralu-program-code-system", ())?,
    };
    let mut talk = solving.open("program", Some(system)).await?;
    let written = ask(solving, &mut talk, kind).await;
    solving.close(talk);
    let Written { source, units, syntax_errors } = written?;
    solving.program = Some(source.clone());
    solving.emit(Event::Units { source, units: units.clone(), syntax_errors });
    Ok(units)
}

/// A program that a reply gave, with its units.
struct Written {
    source: String,
    units: Vec<String>,
    syntax_errors: Vec<String>,
}

async fn ask(solving: &Solving<'_>, talk: &mut Talk, kind: UnitKind) -> Result<Written, Failure> {
    let problem = solving.problem;
    if problem.kind == Kind::Math {
        talk.say_prompt("ralu-program-math-examples", ())?;
    }
    talk.say(Role::User, &problem.question);
    let entry_point = problem.entry_point.as_deref();
    let read_program = |reply: &Reply| {
        let source = program_of(reply, entry_point)?.source;
        let reading = units_of(&source, problem.kind, entry_point);
        let units = match kind {
            UnitKind::Logic => reading.units.into_iter().map(|unit| unit.text).collect(),
            UnitKind::Lines => lines_of(&source),
        };
        let syntax_errors: Vec<String> = reading
            .syntax_errors
            .iter()
            .map(|e| format!("line {}, column {}: {}", e.line, e.column, e.text))
            .collect();
        if units.is_empty() {
            return Err("the program has no statements".to_owned());
        }
        Ok(Written { source, units, syntax_errors })
    };
    Ok(talk.ask(&solving.ask(PROGRAM_TOKENS), read_program).await?.0)
}

fn units_of(source: &str, kind: Kind, entry_point: Option<&str>) -> Reading {
    let _ = (kind, entry_point);
    read(source, &ReadOptions::default())
}

/// The line-by-line ablation: every line that is not blank, stripped.
fn lines_of(source: &str) -> Vec<String> {
    source.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The first place that does not parse, in words.
pub fn first_syntax_error(source: &str) -> Option<String> {
    let reading = read(source, &ReadOptions::default());
    reading.syntax_errors.first().map(|error| format!("line {}: {}", error.line, error.text.trim()))
}
