//! Stage 3: the solution is written from the units that stand; the first program is not shown again.

use minijinja::{Value, context};

use crate::answer::{Kind, Rule};
use crate::llm::{Event, Reply, Role};
use crate::program::sandbox::{Outcome as Ran, Run};

use super::super::Failure;
use super::super::solving::{Solving, answer_of, program_of};
use super::super::turn::Talk;
use super::align::Settled;
use super::{PROGRAM_TOKENS, VERDICT_TOKENS};

/// Most characters of an answer or of output that are shown to the model.
const SHOWN: usize = 500;

/// The verified dialogue goes on, so that what was computed for it is used again.
pub async fn go_on(solving: &mut Solving<'_>, talk: &mut Talk) -> Result<String, Failure> {
    solving.stage("synthesis");
    if solving.problem.kind == Kind::Code {
        let entry_point = solving.problem.entry_point.as_deref();
        talk.say_prompt("ralu-synthesis-code", context! { entry_point })?;
        return ask_code(solving, talk).await;
    }
    let mark = talk.mark();
    talk.say_prompt("ralu-synthesis-math-program", ())?;
    let program = ask_math_program(solving, talk).await?;
    if program.is_none() {
        talk.rewind(mark).await?;
    }
    let note = run(solving, program.as_deref()).await?;
    talk.say_prompt("ralu-synthesis-math-answer", note.context())?;
    ask_answer(solving, talk).await
}

/// New dialogues are shown the units, what was found about each, and the question.
pub async fn rebuilt(solving: &mut Solving<'_>, units: &[Settled]) -> Result<String, Failure> {
    solving.stage("synthesis");
    let question = solving.problem.question.as_str();
    if solving.problem.kind == Kind::Code {
        let mut talk = open_path(solving, "synthesis", "ralu-rebuilt-code-system", units).await?;
        talk.say(Role::User, question);
        let program = ask_code(solving, &mut talk).await;
        solving.close(talk);
        return program;
    }
    let mut talk = open_path(solving, "synthesis", "ralu-rebuilt-math-system", units).await?;
    let program = match talk.say_prompt("ralu-rebuilt-math-program", context! { question }) {
        Ok(()) => ask_math_program(solving, &mut talk).await,
        Err(failure) => Err(failure),
    };
    solving.close(talk);
    let program = program?;
    let note = run(solving, program.as_deref()).await?;
    let shown = context! { question, program, ..note.context() };
    let mut talk = open_path(solving, "answer", "ralu-rebuilt-math-system", units).await?;
    let answer = match talk.say_prompt("ralu-rebuilt-math-answer", shown) {
        Ok(()) => ask_answer(solving, &mut talk).await,
        Err(failure) => Err(failure),
    };
    solving.close(talk);
    answer
}

async fn open_path(
    solving: &Solving<'_>,
    role: &str,
    system: &str,
    units: &[Settled],
) -> Result<Talk, Failure> {
    let prompts = &solving.context.prompts;
    let units: Vec<Value> = units
        .iter()
        .map(|unit| context! { text => &unit.text, analysis => &unit.analysis })
        .collect();
    let path = prompts.render("ralu-rebuilt-path", context! { units })?;
    let mut talk = solving.open(role, Some(prompts.render(system, ())?)).await?;
    talk.say(Role::User, &path);
    Ok(talk)
}

/// The program that is the answer to a code problem: it parses and has its entry point.
async fn ask_code(solving: &mut Solving<'_>, talk: &mut Talk) -> Result<String, Failure> {
    let entry_point = solving.problem.entry_point.as_deref();
    let read = |reply: &Reply| {
        let source = program_of(reply, entry_point)?.source;
        match super::program::first_syntax_error(&source) {
            None => Ok(source),
            Some(error) => Err(format!("the program does not parse ({error})")),
        }
    };
    let (program, _) = talk.ask(&solving.ask(PROGRAM_TOKENS), read).await?;
    solving.program = Some(program.clone());
    Ok(program)
}

/// The program that is to be run for a math problem; `None` when no reply held one.
async fn ask_math_program(
    solving: &mut Solving<'_>,
    talk: &mut Talk,
) -> Result<Option<String>, Failure> {
    let read = |reply: &Reply| Ok(program_of(reply, None)?.source);
    match talk.ask(&solving.ask(PROGRAM_TOKENS), read).await {
        Ok((program, _)) => {
            solving.program = Some(program.clone());
            Ok(Some(program))
        }
        Err(Failure::Format { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

async fn ask_answer(solving: &Solving<'_>, talk: &mut Talk) -> Result<String, Failure> {
    let read = |reply: &Reply| answer_of(reply, &[Rule::AnswerTag, Rule::Phrase]);
    Ok(talk.ask(&solving.ask(VERDICT_TOKENS), read).await?.0)
}

/// What the model is told of the run of its program.
#[derive(Debug, Default, PartialEq, Eq)]
struct Note {
    outcome: &'static str,
    answer: String,
    stdout: String,
    why: String,
}

impl Note {
    fn context(&self) -> Value {
        let Self { outcome, answer, stdout, why } = self;
        context! { outcome => *outcome, answer, stdout, why }
    }

    fn failed(why: String) -> Self {
        Self { outcome: "failed", why, ..Self::default() }
    }

    fn of(run: &Run) -> Self {
        match &run.outcome {
            Ran::Finished { answer: Some(answer) } => {
                Self { outcome: "answer", answer: shown(answer), ..Self::default() }
            }
            Ran::Finished { answer: None } => {
                Self { outcome: "no answer", stdout: shown(run.stdout.trim()), ..Self::default() }
            }
            other => Self::failed(shown(&other.to_string())),
        }
    }
}

/// Runs the program, if there is one, in the sandbox.
async fn run(solving: &Solving<'_>, program: Option<&str>) -> Result<Note, Failure> {
    let Some(program) = program else {
        return Ok(Note { outcome: "no program", ..Note::default() });
    };
    let run = solving.context.sandbox.run(program, "ans").await;
    let run = run.map_err(|what| Failure::Sandbox { what })?;
    let note = Note::of(&run);
    let answer = match &run.outcome {
        Ran::Finished { answer } => answer.clone(),
        _ => None,
    };
    let outcome = match note.outcome {
        "failed" => note.why.clone(),
        "answer" => "finished".to_owned(),
        _ => "finished without setting `ans`".to_owned(),
    };
    solving.emit(Event::Ran { outcome, answer, stdout: run.stdout });
    Ok(note)
}

/// A text of bounded length; what was cut is said.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{} … (cut after {SHOWN} characters)", &text[..end]),
        None => text.to_owned(),
    }
}
