//! Stage 1: the model writes a program, and the program is read into units.

use std::sync::{Mutex, PoisonError};

use minijinja::context;

use crate::answer::{Kind, Problem};
use crate::llm::{Event, Reply};
use crate::program::units::{ReadOptions, SyntaxError, Unit, by_line, read};

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
        Kind::Text => return Err(Failure::Unfit),
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
    let question = problem.question.as_str();
    let entry_point = problem.entry_point.as_deref();
    match problem.kind {
        Kind::Math => {
            talk.say_prompt("ralu-program-math-examples", ())?;
            talk.say_prompt("ralu-program-math-question", context! { question })?;
        }
        Kind::Code => {
            let asked = context! { question, entry_point };
            talk.say_prompt("ralu-program-code-question", asked)?;
        }
        Kind::Text => return Err(Failure::Unfit),
    }
    // What does not parse is asked for again; if nothing better comes, it is judged as it stands.
    let unparsed: Mutex<Option<Written>> = Mutex::new(None);
    let read_program = |reply: &Reply| {
        let written = written(program_of(reply, entry_point)?.source, problem, kind)?;
        match written.syntax_errors.first() {
            None => Ok(written),
            Some(error) => {
                let what = format!("the program does not parse ({error})");
                *unparsed.lock().unwrap_or_else(PoisonError::into_inner) = Some(written);
                Err(what)
            }
        }
    };
    let heard = talk.ask(&solving.ask(PROGRAM_TOKENS), read_program).await;
    match heard {
        Ok((written, _)) => Ok(written),
        Err(failure @ Failure::Format { .. }) => {
            unparsed.into_inner().unwrap_or_else(PoisonError::into_inner).ok_or(failure)
        }
        Err(failure) => Err(failure),
    }
}

/// Reads a program into units; what is missing where it has none.
fn written(source: String, problem: &Problem, kind: UnitKind) -> Result<Written, String> {
    let entry_point = problem.entry_point.as_deref();
    // A math program without structure still comes in parts that can be judged one by one.
    let split_long_single_unit = problem.kind == Kind::Math;
    let reading = read(&source, &ReadOptions { entry_point, split_long_single_unit });
    let units: Vec<Unit> = match kind {
        UnitKind::Line => by_line(&source),
        UnitKind::Cfg | UnitKind::NlStep => reading.units,
    };
    if units.is_empty() {
        return Err("the program has no statements".to_owned());
    }
    let units = units.into_iter().map(|unit| unit.text).collect();
    let syntax_errors = reading.syntax_errors.iter().map(place).collect();
    Ok(Written { source, units, syntax_errors })
}

/// The first place of a program that does not parse, in words.
pub fn first_syntax_error(source: &str) -> Option<String> {
    read(source, &ReadOptions::default()).syntax_errors.first().map(place)
}

fn place(error: &SyntaxError) -> String {
    format!("line {}, column {}: {}", error.line, error.column, error.text.trim())
}
