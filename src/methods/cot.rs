//! Zero-shot chain of thought: the question with a cue to work step by step, one reply
//! (Kojima et al., 2022; the answer in a tag of its own instead of a second call).

use async_trait::async_trait;

use crate::answer::Problem;

use super::direct::one_reply;
use super::solving::Solving;
use super::{Context, Method, Outcome};

/// Asks for the steps, then the answer.
#[derive(Clone, Debug, Default)]
pub struct Cot;

#[async_trait]
impl Method for Cot {
    fn name(&self) -> String {
        "cot".to_owned()
    }

    async fn solve(&self, problem: &Problem, context: &Context) -> Outcome {
        let mut solving = Solving::begin(self.name(), problem, context);
        let result = one_reply(&mut solving, "cot", ["cot-math", "cot-code"]).await;
        solving.end(result)
    }
}
