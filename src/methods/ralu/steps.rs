//! Stage 1 of the ablation without a program: the model writes steps in words, and each is a unit.

use minijinja::context;

use crate::answer::{Kind, tagged, without_thoughts};
use crate::llm::{Event, FinishReason, Reply, Role};

use super::super::Failure;
use super::super::solving::Solving;
use super::PROGRAM_TOKENS;

/// Has the steps written; answers with them as a judge reads them, at least one.
pub async fn write(solving: &mut Solving<'_>) -> Result<Vec<String>, Failure> {
    solving.stage("steps");
    let problem = solving.problem;
    let question = problem.question.as_str();
    let entry_point = problem.entry_point.as_deref();
    let prompts = solving.context.prompts.clone();
    let asked = match problem.kind {
        Kind::Math => prompts.render("ralu-steps-math", context! { question })?,
        Kind::Code => prompts.render("ralu-steps-code", context! { question, entry_point })?,
        Kind::Text => return Err(Failure::Unfit),
    };
    let mut talk = solving.open("steps", None).await?;
    talk.say(Role::User, &asked);
    let heard = talk.ask(&solving.ask(PROGRAM_TOKENS), read).await;
    solving.close(talk);
    let (units, reply) = heard?;
    solving.emit(Event::Units {
        source: reply.text,
        units: units.clone(),
        syntax_errors: Vec::new(),
    });
    Ok(units)
}

/// The steps of a reply; else what is missing.
fn read(reply: &Reply) -> Result<Vec<String>, String> {
    let text = without_thoughts(&reply.text);
    let steps: Vec<String> = tagged(text, "Step")
        .into_iter()
        .map(str::trim)
        .filter(|step| step.contains(char::is_alphanumeric))
        .map(str::to_owned)
        .collect();
    match steps.is_empty() {
        false => Ok(steps),
        true if reply.finish == FinishReason::MaxTokens => {
            Err("the reply was cut off before the first <Step>...</Step> was closed".to_owned())
        }
        true => Err("there is no step in <Step>...</Step>".to_owned()),
    }
}
