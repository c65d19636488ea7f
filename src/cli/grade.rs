//! `unsay grade`: stored replies judged, one JSON object a line.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::arguments::GradeArgs;
use super::failure::{Failure, chain};
use super::output::{note, say};
use super::{setup, wait};
use crate::answer::{
    Equality, Kind, LADDER, Rule, Verdict, extract, grade as graded, read_code, without_thoughts,
};
use crate::program::sandbox::Sandbox;
use crate::tasks::{self, Gold, Item, Json, Task, TaskError};

/// `unsay grade`
pub fn grade(args: &GradeArgs) -> Result<ExitCode, Failure> {
    if args.pairs {
        return pairs(args);
    }
    let task =
        tasks::named(&args.task).ok_or_else(|| TaskError::Unknown { name: args.task.clone() })?;
    let known = known(task, args.data.as_deref())?;
    let (mut items, mut damaged) = (Vec::new(), 0);
    for (line, record) in tasks::records(&args.file)? {
        match record.and_then(|record| stored(task, line, &record, &known)) {
            Ok((item, reply)) => items.push((line, item, reply)),
            Err(why) => {
                damaged += 1;
                note!("{}:{line}: left out: {why}", args.file.display());
            }
        }
    }
    if items.is_empty() {
        return Err(Failure::usage(format!("{} has nothing to grade", args.file.display()))
            .hint(format!(
                "a line has the fields of the task and `response`, or its id and `response` where the \
                 task's file is named by --data or lies in ${}",
                tasks::DATA_FOLDER
            )));
    }
    let sandbox = match items.iter().any(|(_, item, _)| item.kind() == Kind::Code) {
        true => Some(Arc::new(setup::sandbox(&args.sandbox)?)),
        false => None,
    };
    let mut counts = Counts { damaged, ..Counts::default() };
    wait(all(items, sandbox, &mut counts))??;
    counts.tell();
    Ok(ExitCode::SUCCESS)
}

/// The items of the task by their ids, for replies that are stored without their questions.
fn known(task: &'static Task, data: Option<&Path>) -> Result<BTreeMap<String, Item>, Failure> {
    let folder = tasks::data_folder();
    let path = match (tasks::find(task, data.or(folder.as_deref())), data) {
        (Ok(path), _) => path,
        (Err(error), Some(_)) => return Err(error.into()),
        (Err(_), None) => return Ok(BTreeMap::new()),
    };
    let items = tasks::load_from(task, &path)?.items.into_iter();
    Ok(items.map(|item| (item.id.clone(), item)).collect())
}

/// The item and the reply of a record: by the record's own fields, else by its id.
fn stored(
    task: &Task,
    line: usize,
    record: &Json,
    known: &BTreeMap<String, Item>,
) -> Result<(Item, String), String> {
    let reply = record.get("response").ok_or("it has no `response`")?;
    let reply = reply.text().ok_or("its `response` is no text")?.to_owned();
    let own = task.item(line, record);
    let id = ["id", "task_id", "unique_id", "key", "ID"]
        .iter()
        .find_map(|name| record.get(name).and_then(Json::word));
    match (own, id) {
        (Ok(item), _) => Ok((item, reply)),
        (Err(why), None) => Err(why),
        (Err(why), Some(_)) if known.is_empty() => {
            Err(format!("{why}, and the data of {} are not here to find its id in", task.name))
        }
        (Err(why), Some(id)) => match known.get(&id) {
            Some(item) => Ok((item.clone(), reply)),
            None => Err(format!("{why}, and {} has no item `{id}`", task.name)),
        },
    }
}

/// Words of a reply that is nothing but an answer.
const WORDS: usize = 12;

/// What is judged of a reply to an item, and the rule by which it was found.
fn answer_of(item: &Item, reply: &str) -> Option<(String, Value)> {
    match item.kind() {
        Kind::Math => {
            // Words are no number, and an option may be named by its words: a reply that has nothing else
            // is the answer itself.
            let worded = matches!(item.gold, Gold::Words(_) | Gold::Choice { .. });
            let whole = || {
                let text = without_thoughts(reply).trim();
                let short = (1..=WORDS).contains(&text.split_whitespace().count());
                (worded && short).then(|| (text.to_owned(), json!("whole")))
            };
            match extract(reply, &LADDER) {
                Some(found) if found.rule != Rule::LastNumber => {
                    Some((found.text, json!(found.rule)))
                }
                found => whole().or_else(|| found.map(|f| (f.text, json!(f.rule)))),
            }
        }
        Kind::Text => Some((without_thoughts(reply).to_owned(), json!("whole"))),
        Kind::Code => match read_code(reply) {
            Some(code) => Some((code.source, json!(code.rule))),
            None => Some((without_thoughts(reply).to_owned(), json!("whole"))),
        },
    }
}

async fn all(
    items: Vec<(usize, Item, String)>,
    sandbox: Option<Arc<Sandbox>>,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let mut waiting = items.into_iter().enumerate();
    let mut under_way = JoinSet::new();
    let mut done: BTreeMap<usize, (Verdict, Value)> = BTreeMap::new();
    let mut next = 0;
    loop {
        while under_way.len() < at_once
            && let Some((at, (line, item, reply))) = waiting.next()
        {
            let sandbox = sandbox.clone();
            under_way.spawn(async move {
                let judged = one(line, &item, &reply, sandbox.as_deref()).await;
                judged.map(|judged| (at, judged))
            });
        }
        let Some(finished) = under_way.join_next().await else { return Ok(()) };
        let finished = finished.map_err(|e| Failure::stated(format!("a grader ended: {e}")))?;
        let (at, judged) = finished.map_err(|e| Failure::missing(chain(&e)))?;
        done.insert(at, judged);
        // In the order of the file.
        while let Some((verdict, line)) = done.remove(&next) {
            say!("{line}");
            counts.add(verdict);
            next += 1;
        }
    }
}

async fn one(
    line: usize,
    item: &Item,
    reply: &str,
    sandbox: Option<&Sandbox>,
) -> Result<(Verdict, Value), tasks::JudgeError> {
    let mut fields = Map::new();
    fields.insert("line".into(), json!(line));
    fields.insert("id".into(), json!(item.id));
    let verdict = match answer_of(item, reply) {
        Some((answer, found_by)) => {
            let judged = tasks::judge(item, &answer, sandbox).await?;
            if let Value::Object(all) = json!(judged) {
                fields.extend(all);
            }
            if item.kind() == Kind::Math {
                fields.insert("answer".into(), json!(answer));
            }
            fields.insert("found_by".into(), found_by);
            judged.verdict
        }
        None => {
            fields.insert("verdict".into(), json!(Verdict::Undecided));
            fields.insert("rule".into(), json!("the reply states no answer"));
            Verdict::Undecided
        }
    };
    Ok((verdict, Value::Object(fields)))
}

/// Pairs of `gold` and `answer`, compared as values.
fn pairs(args: &GradeArgs) -> Result<ExitCode, Failure> {
    if args.task != "math" {
        return Err(Failure::usage("--pairs compares values, so the task is `math`"));
    }
    let mut counts = Counts::default();
    for (line, record) in tasks::records(&args.file)? {
        let read = record.and_then(|record| {
            let word = |name: &str| {
                record.get(name).and_then(Json::word).ok_or(format!("it has no `{name}`"))
            };
            Ok((word("gold")?, word("answer")?))
        });
        let (gold, answer) = match read {
            Ok(pair) => pair,
            Err(why) => {
                counts.damaged += 1;
                note!("{}:{line}: left out: {why}", args.file.display());
                continue;
            }
        };
        let graded = graded(&answer, &gold);
        let verdict = match graded.equality {
            Equality::Equal => Verdict::Right,
            Equality::Different => Verdict::Wrong,
            Equality::Undecided => Verdict::Undecided,
        };
        counts.add(verdict);
        let rule = graded.rule.name();
        say!("{}", json!({"line": line, "verdict": verdict, "rule": rule}));
    }
    if counts.all() == 0 {
        return Err(Failure::usage(format!("{} has nothing to grade", args.file.display()))
            .hint("a line has `gold` and `answer`"));
    }
    counts.tell();
    Ok(ExitCode::SUCCESS)
}

#[derive(Default)]
struct Counts {
    right: usize,
    wrong: usize,
    undecided: usize,
    damaged: usize,
}

impl Counts {
    fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Right => &mut self.right,
            Verdict::Wrong => &mut self.wrong,
            Verdict::Undecided => &mut self.undecided,
        } += 1;
    }

    fn all(&self) -> usize {
        self.right + self.wrong + self.undecided
    }

    fn tell(&self) {
        note!(
            "right {} of {}, wrong {}, undecided {}{}",
            self.right,
            self.all(),
            self.wrong,
            self.undecided,
            match self.damaged {
                0 => String::new(),
                1 => "; 1 line could not be read".to_owned(),
                count => format!("; {count} lines could not be read"),
            }
        );
    }
}
