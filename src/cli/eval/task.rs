//! The items of a run, and who judges their answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use super::super::arguments::EvalArgs;
use super::super::failure::{Failure, chain};
use super::super::tasks::tell_damaged;
use crate::answer::Problem;
use crate::program::sandbox::Sandbox;
use crate::runs::{Judge, Judgement, Plan};
use crate::store;
use crate::tasks::{self, Item, Loaded, Selection};

/// What is asked, and what is right.
pub struct Items {
    pub task: String,
    /// The file, as an absolute path, and its SHA-256.
    pub data: PathBuf,
    pub data_digest: String,
    pub problems: Vec<Problem>,
    /// Items of the whole published set, or of the file where nobody knows.
    pub whole: usize,
    items: Arc<BTreeMap<String, Item>>,
}

impl Items {
    /// The items that the command line asks for.
    pub fn select(args: &EvalArgs) -> Result<Self, Failure> {
        let loaded = tasks::load(&args.task, args.data.as_deref())?;
        tell_damaged(&loaded);
        let selection = Selection { limit: args.limit, sample: args.sample, ids: args.ids.clone() };
        let Loaded { path, items, .. } = loaded;
        let whole = tasks::named(&args.task).and_then(|task| task.whole).unwrap_or(items.len());
        let items = selection.of(&args.task, items)?;
        Ok(Self { whole, ..Self::of(&args.task, &path, items)? })
    }

    /// The items of a plan, from the file that it was begun with.
    pub fn of_plan(plan: &Plan) -> Result<Self, Failure> {
        let loaded = tasks::load(&plan.task, Some(&plan.data))?;
        let items = Self::of(&plan.task, &plan.data, loaded.items)?;
        if items.data_digest != plan.data_digest {
            let (what, was) = (plan.data.display().to_string(), &plan.data_digest);
            return Err(changed(&what, was, &items.data_digest));
        }
        Ok(items)
    }

    fn of(task: &str, path: &Path, items: Vec<Item>) -> Result<Self, Failure> {
        let data = std::fs::canonicalize(path)
            .map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))?;
        let data_digest = store::sha256_of(&data).map_err(|e| Failure::usage(chain(&e)))?;
        let problems: Vec<_> = items.iter().map(Item::problem).collect();
        let whole = problems.len();
        let items = items.into_iter().map(|item| (item.id.clone(), item)).collect();
        let (task, items) = (task.to_owned(), Arc::new(items));
        Ok(Self { task, data, data_digest, problems, whole, items })
    }

    /// Who judges their answers.
    pub fn judge(&self, sandbox: Arc<Sandbox>) -> Arc<dyn Judge> {
        Arc::new(Grader { items: Arc::clone(&self.items), sandbox })
    }
}

/// What a run stands on is not what it was begun with.
pub fn changed(what: &str, was: &str, is: &str) -> Failure {
    Failure::usage(format!("{what} changed since the run was begun (SHA-256 then {was}, now {is})"))
        .hint("begin another run in another folder")
}

struct Grader {
    items: Arc<BTreeMap<String, Item>>,
    sandbox: Arc<Sandbox>,
}

#[async_trait]
impl Judge for Grader {
    async fn judge(&self, problem: &Problem, answer: &str) -> Result<Judgement, String> {
        let item = self.items.get(&problem.id).ok_or("there is no right answer to it")?;
        let judged = tasks::judge(item, answer, Some(&self.sandbox)).await;
        let judged = judged.map_err(|error| chain(&error))?;
        Ok(Judgement { verdict: judged.verdict, rule: judged.rule, scores: judged.scores })
    }
}
