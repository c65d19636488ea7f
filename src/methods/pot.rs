//! Program of thought (PAL: Gao et al., 2023; PoT: Chen et al., 2023): the model writes a program, and the
//! answer is what it leaves in `ans`. RaLU begins with the same words, so this is its single path.
//! For a code problem the program itself is the answer, so there it is the direct method.

use async_trait::async_trait;
use minijinja::context;

use crate::answer::{Kind, Problem};
use crate::llm::{Event, Reply};
use crate::program::sandbox::Outcome as Ran;

use super::direct::one_reply;
use super::solving::{Solving, program_of};
use super::turn::Talk;
use super::{Context, Failure, Method, Outcome};

/// Most tokens of a program, where the user sets no limit.
pub(super) const PROGRAM_TOKENS: usize = 1024;

/// Asks for a program, and runs it.
#[derive(Clone, Debug, Default)]
pub struct Pot;

#[async_trait]
impl Method for Pot {
    fn name(&self) -> String {
        "pot".to_owned()
    }

    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome {
        let mut solving = Solving::begin(self.name(), problem, context);
        let result = match problem.kind {
            Kind::Math => math(&mut solving).await,
            Kind::Code => one_reply(&mut solving, "direct", ["direct-math", "direct-code"]).await,
            Kind::Text => Err(Failure::Unfit),
        };
        solving.end(result)
    }
}

async fn math(solving: &mut Solving<'_>) -> Result<String, Failure> {
    let mut talk = open(solving).await?;
    let read = |reply: &Reply| Ok(program_of(reply, None)?.source);
    let heard = talk.ask(&solving.ask(PROGRAM_TOKENS), read).await;
    solving.close(talk);
    let program = heard?.0;
    solving.program = Some(program.clone());
    value_of(solving, &program).await
}

/// A dialogue in which a program for the problem was asked for.
pub(super) async fn open(solving: &Solving<'_>) -> Result<Talk, Failure> {
    solving.stage("program");
    let problem = solving.problem;
    let question = problem.question.as_str();
    let system = match problem.kind {
        Kind::Math => "ralu-program-math-system",
        Kind::Code => "ralu-program-code-system",
        Kind::Text => return Err(Failure::Unfit),
    };
    let system = solving.context.prompts.render(system, ())?;
    let mut talk = solving.open("program", Some(system)).await?;
    match problem.kind {
        Kind::Math => {
            talk.say_prompt("ralu-program-math-examples", ())?;
            talk.say_prompt("ralu-program-math-question", context! { question })?;
        }
        Kind::Code => {
            let entry_point = problem.entry_point.as_deref();
            talk.say_prompt("ralu-program-code-question", context! { question, entry_point })?;
        }
        Kind::Text => return Err(Failure::Unfit),
    }
    Ok(talk)
}

/// Runs a program in the sandbox; answers with what it left in `ans`.
pub(super) async fn value_of(solving: &Solving<'_>, program: &str) -> Result<String, Failure> {
    let run = solving.context.sandbox.run(program, "ans").await;
    let run = run.map_err(|what| Failure::Sandbox { what })?;
    let (outcome, answer) = match run.outcome {
        Ran::Finished { answer: Some(answer) } => ("finished".to_owned(), Some(answer)),
        Ran::Finished { answer: None } => ("finished without setting `ans`".to_owned(), None),
        other => (other.to_string(), None),
    };
    solving.emit(Event::Ran {
        outcome: outcome.clone(),
        answer: answer.clone(),
        stdout: run.stdout,
    });
    answer.ok_or(Failure::Program { what: outcome })
}
