//! Self-Debug by explanation (Chen et al., 2024, "rubber duck"): the model writes a program, explains it line
//! by line, says whether it is right, and corrects it where it is not. Nothing is run on the way, so the
//! model has no more to go by than RaLU's judge has.
//!
//! One conversation: what was explained and corrected stays in sight. It ends when the model calls its
//! program right, when a correction changes nothing, or after the last round. For a math problem the last
//! program is then run, and the answer is what it leaves in `ans`.

use async_trait::async_trait;
use minijinja::context;

use crate::answer::{Kind, Problem, without_thoughts};
use crate::llm::Reply;

use super::pot::{self, PROGRAM_TOKENS};
use super::ralu::{first_syntax_error, first_word, same_unit};
use super::solving::{Solving, program_of};
use super::turn::Talk;
use super::{Context, Failure, Method, Outcome};

/// Most tokens of an explanation, where the user sets no limit.
const EXPLANATION_TOKENS: usize = 512;

/// Self-Debug's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfDebugOptions {
    /// Most explanations, each with its judgement.
    pub max_rounds: u32,
}

impl Default for SelfDebugOptions {
    fn default() -> Self {
        Self { max_rounds: 3 }
    }
}

/// Explains its own program and corrects it.
#[derive(Clone, Debug, Default)]
pub struct SelfDebug {
    pub options: SelfDebugOptions,
}

#[async_trait]
impl Method for SelfDebug {
    fn name(&self) -> String {
        match self.options.max_rounds {
            3 => "self-debug".to_owned(),
            rounds => format!("self-debug[max-rounds={rounds}]"),
        }
    }

    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome {
        let mut solving = Solving::begin(self.name(), problem, context);
        let result = self.run(&mut solving).await;
        solving.end(result)
    }
}

impl SelfDebug {
    async fn run(&self, solving: &mut Solving<'_>) -> Result<String, Failure> {
        let mut talk = pot::open(solving).await?;
        let program = self.debug(solving, &mut talk).await;
        solving.close(talk);
        let program = program?;
        match solving.problem.kind {
            Kind::Math => pot::value_of(solving, &program).await,
            Kind::Code => Ok(program),
            Kind::Text => Err(Failure::Unfit),
        }
    }

    /// The program that stands at the end of the conversation.
    async fn debug(&self, solving: &mut Solving<'_>, talk: &mut Talk) -> Result<String, Failure> {
        let entry_point = solving.problem.entry_point.as_deref();
        let read = |reply: &Reply| Ok(program_of(reply, entry_point)?.source);
        let (mut program, _) = talk.ask(&solving.ask(PROGRAM_TOKENS), read).await?;
        solving.program = Some(program.clone());
        for round in 1..=self.options.max_rounds {
            solving.stage(&format!("explanation {round}"));
            talk.say_prompt("self-debug-explain", ())?;
            talk.ask(&solving.ask(EXPLANATION_TOKENS), explained).await?;
            let kind = match solving.problem.kind {
                Kind::Math => "question",
                Kind::Code => "specification",
                Kind::Text => return Err(Failure::Unfit),
            };
            talk.say_prompt("self-debug-judge", context! { kind, entry_point })?;
            let read = |reply: &Reply| judgement(reply, entry_point);
            let heard = talk.ask(&solving.ask(PROGRAM_TOKENS), read).await;
            let corrected = match heard {
                Ok((corrected, _)) => corrected,
                // What cannot be read is no correction: the program stays, and nothing more is asked.
                Err(Failure::Format { .. }) => return Ok(program),
                Err(other) => return Err(other),
            };
            solving.rounds += 1;
            match corrected {
                Some(corrected) if !same_unit(&corrected, &program) => program = corrected,
                _ => return Ok(program),
            }
            solving.program = Some(program.clone());
        }
        Ok(program)
    }
}

/// An explanation says something.
fn explained(reply: &Reply) -> Result<(), String> {
    match without_thoughts(&reply.text).contains(char::is_alphanumeric) {
        true => Ok(()),
        false => Err("it explains nothing".to_owned()),
    }
}

/// `None` where the reply calls the program right; else the corrected program.
fn judgement(reply: &Reply, entry_point: Option<&str>) -> Result<Option<String>, String> {
    match first_word(without_thoughts(&reply.text)) {
        Some("RIGHT") => Ok(None),
        Some("WRONG") => {
            let source = program_of(reply, entry_point)?.source;
            match first_syntax_error(&source) {
                None => Ok(Some(source)),
                Some(error) => Err(format!("the corrected program does not parse ({error})")),
            }
        }
        _ => Err("its first word is neither RIGHT nor WRONG".to_owned()),
    }
}
