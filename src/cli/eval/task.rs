//! The items of a task, and who judges them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::super::arguments::EvalArgs;
use super::super::failure::Failure;
use super::super::inspect::read_text;
use crate::answer::{Equality, Problem, compare};
use crate::program::sandbox::Sandbox;
use crate::runs::{Judge, Judgement, Plan, Verdict};

/// What is asked, and what is right.
pub struct Items {
    pub task: String,
    pub data: PathBuf,
    pub problems: Vec<Problem>,
    gold: BTreeMap<String, String>,
}

impl Items {
    /// The items that the command line asks for.
    pub fn select(args: &EvalArgs) -> Result<Self, Failure> {
        let data = args.data.clone().ok_or_else(|| {
            Failure::usage("--data is missing")
                .hint("name a file of lines {\"question\", \"answer\"}")
        })?;
        let mut items = Self::read(&args.task, &data)?;
        items.problems.truncate(args.limit.unwrap_or(usize::MAX));
        Ok(items)
    }

    /// The items of a plan.
    pub fn of_plan(plan: &Plan) -> Result<Self, Failure> {
        Self::read(&plan.task, &plan.data)
    }

    fn read(task: &str, data: &Path) -> Result<Self, Failure> {
        if task != "jsonl" {
            return Err(Failure::usage(format!("there is no task `{task}`"))
                .hint("`jsonl` reads a file of your own, a line {\"question\", \"answer\"} each"));
        }
        let text = read_text(data)?;
        let (mut problems, mut gold) = (Vec::new(), BTreeMap::new());
        for (index, line) in text.lines().enumerate() {
            let value: serde_json::Value = serde_json::from_str(line)
                .map_err(|e| Failure::usage(format!("{}:{}: {e}", data.display(), index + 1)))?;
            let id = format!("{task}-{}", index + 1);
            let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
            problems.push(Problem {
                id: id.clone(),
                question: field("question"),
                ..Problem::default()
            });
            gold.insert(id, field("answer"));
        }
        let data = std::fs::canonicalize(data)
            .map_err(|e| Failure::usage(format!("cannot read {}: {e}", data.display())))?;
        Ok(Self { task: task.to_owned(), data, problems, gold })
    }

    /// Who judges their answers.
    pub fn judge(&self, _: Arc<Sandbox>) -> Arc<dyn Judge> {
        Arc::new(Values(self.gold.clone()))
    }
}

struct Values(BTreeMap<String, String>);

#[async_trait]
impl Judge for Values {
    async fn judge(&self, problem: &Problem, answer: &str) -> Result<Judgement, String> {
        let gold = self.0.get(&problem.id).ok_or("there is no right answer to it")?;
        let verdict = match compare(answer, gold) {
            Equality::Equal => Verdict::Right,
            Equality::Different => Verdict::Wrong,
            Equality::Undecided => Verdict::Undecided,
        };
        Ok(Judgement { verdict, rule: "value".to_owned() })
    }
}
