//! Direct: the question with a cue for the answer, one reply. The baseline without reasoning.

use async_trait::async_trait;
use minijinja::context;

use crate::answer::{Kind, LADDER, Problem, without_thoughts};

use super::solving::{Solving, answer_of, program_of};
use super::{Context, Failure, Method, Outcome};

/// Asks for the answer alone.
#[derive(Clone, Debug, Default)]
pub struct Direct;

#[async_trait]
impl Method for Direct {
    fn name(&self) -> String {
        "direct".to_owned()
    }

    fn solves(&self, _: Kind) -> bool {
        true
    }

    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome {
        let mut solving = Solving::begin(self.name(), problem, context);
        let result = one_reply(&mut solving, "direct", ["direct-math", "direct-code"]).await;
        solving.end(result)
    }
}

/// One reply to the question as the template of its kind words it; math first, code second.
pub(super) async fn one_reply(
    solving: &mut Solving<'_>,
    role: &str,
    [math, code]: [&str; 2],
) -> Result<String, Failure> {
    const MAX_TOKENS: usize = 1024;
    let problem = solving.problem;
    let prompts = solving.context.prompts.clone();
    let question = &problem.question;
    solving.stage(role);
    match problem.kind {
        Kind::Math => {
            let text = prompts.render(math, context! { question })?;
            let read = |reply: &crate::llm::Reply| answer_of(reply, &LADDER);
            solving.one_turn(role, &text, MAX_TOKENS, read).await
        }
        Kind::Text => solving.one_turn(role, question, MAX_TOKENS, spoken).await,
        Kind::Code => {
            let entry_point = problem.entry_point.as_deref();
            let text = prompts.render(code, context! { question, entry_point })?;
            let read = |reply: &crate::llm::Reply| program_of(reply, entry_point);
            let program = solving.one_turn(role, &text, MAX_TOKENS, read).await?.source;
            solving.program = Some(program.clone());
            Ok(program)
        }
    }
}

/// All that a reply says, without what was thought before.
fn spoken(reply: &crate::llm::Reply) -> Result<String, String> {
    match without_thoughts(&reply.text).trim() {
        "" => Err("it says nothing".to_owned()),
        text => Ok(text.to_owned()),
    }
}
