//! The running itself: what is missing in the journal is run, many items at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::answer::{Kind, Problem, Scores};
use crate::journal::{Journal, JournalError};
use crate::methods::{Context, Failure, Method, Outcome, Status};
use crate::program::sandbox;

use super::plan::{Plan, PlanError};
use super::record::{First, Key, Record, Verdict};
use super::traces::{Tracer, trace_path};

/// What a grader said of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    pub verdict: Verdict,
    /// The rule that decided.
    pub rule: String,
    /// Shares beside the verdict, where the task has any.
    pub scores: Scores,
}

/// Compares answers with what is right.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Judges the answer to a problem: a value, or for `Kind::Code` a program. An error says that it cannot
    /// be judged on this machine now; the item is then not finished.
    async fn judge(&self, problem: &Problem, answer: &str) -> Result<Judgement, String>;
}

/// How a run is carried out; none of it changes an answer.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Items under way at a time.
    pub at_once: usize,
    /// Whether each item's events are kept.
    pub traces: bool,
}

/// A run's folder, opened for work: no other process can open it meanwhile.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    plan: Plan,
    journal: Journal,
    records: BTreeMap<Key, Record>,
    /// Bytes of an unfinished line that were cut off when the journal was opened.
    pub healed: u64,
}

/// What a run works on and with.
pub struct Work<'a> {
    /// The plan's items, and perhaps others.
    pub problems: &'a [Problem],
    /// The plan's methods, in its order.
    pub methods: &'a [Arc<dyn Method>],
    /// Seed, sample and sink are set for each item.
    pub context: &'a Context,
    pub judge: &'a Arc<dyn Judge>,
}

/// What happened.
pub struct Progress<'a> {
    /// The item that was just finished.
    pub record: &'a Record,
    /// Finished so far, those of earlier sittings included, of how many.
    pub finished: usize,
    pub jobs: usize,
}

/// Takes what is told of a run under way.
pub type Told<'a> = dyn FnMut(Progress<'_>) + 'a;

/// Why a run stopped before its end. Finished items are kept; `unsay resume` goes on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(
        "{path} has a finished item that its plan does not know ({what}); journal and plan belong to \
         different runs"
    )]
    Foreign { path: PathBuf, what: String },
    #[error("the engine has stopped: {what}")]
    Engine { what: String },
    #[error("programs cannot be run: {what}")]
    Sandbox { what: String },
    #[error("the answer to {item} cannot be judged: {what}")]
    Judge { item: String, what: String },
    #[error("the item {item} of the plan is not among the task's items any more")]
    Lost { item: String },
    #[error("cannot write the trace {path}: {source}")]
    Trace { path: PathBuf, source: std::io::Error },
    #[error("a method ended in a panic: {what}")]
    Panic { what: String },
}

impl RunError {
    /// Whether something is missing on the machine, rather than wrong with what was asked for.
    pub fn is_missing_on_machine(&self) -> bool {
        matches!(self, Self::Sandbox { .. } | Self::Judge { .. })
    }
}

impl Run {
    /// Begins a run in a folder, or goes on with the one that is there if it was asked for the same.
    pub fn open(folder: &Path, plan: Plan) -> Result<Self, RunError> {
        plan.begin(folder)?;
        let path = folder.join("journal.jsonl");
        let (journal, found) = Journal::open::<Record>(&path)?;
        let known: BTreeSet<Key> = keys(&plan).collect();
        let mut records = BTreeMap::new();
        for record in found.lines {
            if !known.contains(&record.key) {
                let what = format!("{}, {}", record.key.item, record.key.method);
                return Err(RunError::Foreign { path, what });
            }
            records.entry(record.key.clone()).or_insert(record);
        }
        let folder = folder.to_owned();
        Ok(Self { folder, plan, journal, records, healed: found.torn })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What is finished, in the order of its keys.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// How many items are finished.
    pub fn finished(&self) -> usize {
        self.records.len()
    }

    /// Runs what is missing, and tells of each item that is finished. `healthy` says whether the model can
    /// still be asked, after a call of it failed.
    pub async fn go(
        &mut self,
        work: &Work<'_>,
        options: RunOptions,
        healthy: impl AsyncFn() -> Result<(), String>,
        told: &mut Told<'_>,
    ) -> Result<(), RunError> {
        let &Work { problems, methods, context, judge } = work;
        let known: BTreeMap<&str, &Problem> =
            problems.iter().map(|problem| (problem.id.as_str(), problem)).collect();
        let labels = self.plan.methods.iter().map(super::MethodPlan::label);
        let by_label: BTreeMap<String, &Arc<dyn Method>> = labels.zip(methods).collect();
        if options.traces {
            let path = self.folder.join("traces");
            std::fs::create_dir_all(&path).map_err(|source| RunError::Trace { path, source })?;
        }
        let missing: Vec<Key> =
            keys(&self.plan).filter(|key| !self.records.contains_key(key)).collect();
        let mut missing = missing.into_iter();
        // Dropped with this function, whatever ends it: what is under way then ends too.
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < options.at_once.max(1)
                && let Some(key) = missing.next()
            {
                let problem = *known
                    .get(key.item.as_str())
                    .ok_or_else(|| RunError::Lost { item: key.item.clone() })?;
                let job = Job {
                    problem: problem.clone(),
                    method: Arc::clone(by_label[&key.method]),
                    context: Context { seed: key.seed, sample: key.sample, ..context.clone() },
                    judge: Arc::clone(judge),
                    trace: options.traces.then(|| trace_path(&self.folder, &key)),
                    key,
                };
                under_way.spawn(job.finish());
            }
            let Some(finished) = under_way.join_next().await else { return Ok(()) };
            let record = finished.map_err(|e| RunError::Panic { what: e.to_string() })??;
            // A failed call may be the item's own or the end of the engine; only the first is a result.
            if matches!(&record.ended, super::Ended::Failed { failure, .. } if failure == "model") {
                healthy().await.map_err(|what| RunError::Engine { what })?;
            }
            self.journal.append(&record)?;
            let record = self.records.entry(record.key.clone()).or_insert(record);
            let (record, finished) = (record.clone(), self.records.len());
            told(Progress { record: &record, finished, jobs: self.plan.jobs() });
        }
    }
}

/// The keys of a plan in the order of work: all items and methods of the first seed, then of the next.
fn keys(plan: &Plan) -> impl Iterator<Item = Key> {
    plan.seeds.iter().flat_map(move |&seed| {
        plan.items.iter().flat_map(move |item| {
            plan.methods.iter().map(move |method| Key {
                task: plan.task.clone(),
                item: item.clone(),
                method: method.label(),
                model_digest: plan.model_digest.clone(),
                prompts_digest: plan.prompts_digest.clone(),
                seed,
                sample: 0,
            })
        })
    })
}

/// One item by one method.
struct Job {
    key: Key,
    problem: Problem,
    method: Arc<dyn Method>,
    context: Context,
    judge: Arc<dyn Judge>,
    trace: Option<PathBuf>,
}

impl Job {
    async fn finish(self) -> Result<Record, RunError> {
        let tracer = Arc::new(Tracer::new());
        let context = Context { sink: tracer.clone(), ..self.context.clone() };
        let begun = Instant::now();
        let outcome = self.method.solve(&self.problem, &context).await;
        let seconds = begun.elapsed().as_secs_f64();
        let judgement = match &outcome.status {
            Status::Answered { answer } => Some(self.judged(answer).await?),
            Status::Failed { why: Failure::Sandbox { what } } => {
                return Err(RunError::Sandbox { what: what.clone() });
            }
            Status::Failed { .. } => None,
        };
        let first = self.first(&outcome).await?;
        // Before the line that says that the item is finished.
        if let Some(path) = self.trace {
            tracer.write(&path).map_err(|source| RunError::Trace { path, source })?;
        }
        Ok(Record::new(self.key, self.method.name(), &outcome, judgement, first, seconds))
    }

    async fn judged(&self, answer: &str) -> Result<Judgement, RunError> {
        self.judge
            .judge(&self.problem, answer)
            .await
            .map_err(|what| RunError::Judge { item: self.key.item.clone(), what })
    }

    /// What the first program was worth by itself, where a judge spoke of one.
    async fn first(&self, outcome: &Outcome) -> Result<Option<First>, RunError> {
        let Some(judged) = &outcome.judged else { return Ok(None) };
        let Some(program) = &judged.first_program else { return Ok(None) };
        let answer = match self.problem.kind {
            Kind::Code => Some(program.clone()),
            Kind::Math => {
                let run = self.context.sandbox.run(program, "ans").await;
                match run.map_err(|what| RunError::Sandbox { what })?.outcome {
                    sandbox::Outcome::Finished { answer } => answer,
                    _ => None,
                }
            }
            Kind::Text => return Ok(None),
        };
        let verdict = match answer {
            Some(answer) => self.judged(&answer).await?.verdict,
            None => Verdict::Wrong,
        };
        Ok(Some(First { verdict, units: judged.units, wrong_units: judged.wrong_units }))
    }
}
