//! Tasks that ask for functions: the data sets' own solutions and real models' are judged as EvalPlus judges
//! them. All programs run in the sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use unsay::answer::{Kind, Verdict};
use unsay::program::sandbox::{Limits, Options, Outcome, Program, Sandbox};
use unsay::tasks::code::{self, How, Tests, Value};
use unsay::tasks::{self, Gold, Item, Json, JudgeError};

use super::{data_sets, read};

/// The reference's own outputs for one input are more than can be carried.
const TOO_LARGE: &str = "Mbpp/255";
/// The reference takes half a minute: only where everything is run.
const SLOW: &str = "Mbpp/599";

pub fn sandbox() -> Sandbox {
    let child = env!("CARGO_BIN_EXE_unsay").into();
    Sandbox::find(Options { child, ..Options::default() }).unwrap()
}

fn tests_of(item: &Item) -> &Arc<Tests> {
    match &item.gold {
        Gold::Tests(tests) => tests,
        other => panic!("{}: {other:?}", item.id),
    }
}

/// A program that needs a module which `unsay setup` installs is not wrong where that is missing.
#[tokio::test]
async fn a_module_that_is_missing_here_decides_nothing() {
    let how = How::Inputs {
        base: vec![vec![Value::Int("2".to_owned())]],
        plus: vec![vec![Value::Int("3".to_owned())]],
        tolerance: 0.0,
        oracle: code::Oracle::Equal,
    };
    let reference = "def twice(x):\n    return 2 * x\n".to_owned();
    let tests = Tests::new(reference, "twice".to_owned(), String::new(), how);
    let sandbox = sandbox();
    let judged = |module: &str| format!("import {module}\ndef twice(x):\n    return 2 * x\n");
    // A module that nobody has is the program's own fault.
    let other = code::judge(&tests, &judged("no_such_module"), &sandbox).await.unwrap();
    assert_eq!((other.verdict, other.rule.contains("ModuleNotFoundError")), (Verdict::Wrong, true));
    let there = Program::with_answer("import constraint\nthere = 1\n", "there");
    let run = sandbox.run(&there, &Limits::default()).await.unwrap();
    let here = matches!(run.outcome, Outcome::Finished { .. });
    let ours = code::judge(&tests, &judged("constraint"), &sandbox).await.unwrap();
    let expected = if here { Verdict::Right } else { Verdict::Undecided };
    assert_eq!(ours.verdict, expected, "{}", ours.rule);
    assert!(here || ours.rule.contains("unsay setup"), "{}", ours.rule);
}

/// Judges programs two at a time; what was not as it should be, in words.
async fn judge_all(work: Vec<(Item, String, Option<bool>)>) -> Vec<String> {
    let sandbox = sandbox();
    let (work, wrong) = (Arc::new(Mutex::new(work)), Arc::new(Mutex::new(Vec::new())));
    let mut hands = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (work, wrong, sandbox) = (work.clone(), wrong.clone(), sandbox.clone());
        hands.spawn(async move {
            loop {
                let Some((item, answer, right)) = work.lock().unwrap().pop() else { break };
                let judged = tasks::judge(&item, &answer, Some(&sandbox)).await.unwrap();
                let verdict = match right {
                    Some(true) => Verdict::Right,
                    Some(false) => Verdict::Wrong,
                    None => Verdict::Undecided,
                };
                if judged.verdict != verdict {
                    let told = format!("{}: {:?}, {}", item.id, judged.verdict, judged.rule);
                    wrong.lock().unwrap().push(told);
                }
            }
        });
    }
    while let Some(done) = hands.join_next().await {
        done.unwrap();
    }
    std::mem::take(&mut *wrong.lock().unwrap())
}

/// Every data set's own solutions, with one in `step` of the tasks.
async fn judge_references(name: &str, step: usize) {
    let Some(folder) = data_sets() else { return };
    let items = read(name, &folder).items;
    let kept = |(at, item): &(usize, Item)| step == 1 || (at % step == 0 && item.id != SLOW);
    let work = items.into_iter().enumerate().filter(kept).map(|(_, item)| {
        let reference = tests_of(&item).reference.clone();
        let right = (item.id != TOO_LARGE).then_some(true);
        (item, reference, right)
    });
    assert_eq!(judge_all(work.collect()).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn humaneval_solutions_pass_their_tests() {
    judge_references("humaneval", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn humanevalplus_solutions_pass_base_and_plus() {
    judge_references("humanevalplus", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_third_of_mbppplus_solutions_pass_base_and_plus() {
    judge_references("mbppplus", 3).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: run it by hand with --ignored"]
async fn all_mbppplus_solutions_pass_base_and_plus() {
    judge_references("mbppplus", 1).await;
}

/// Solutions of real models, on base and plus apart, where EvalPlus's verdicts are sure.
async fn grade_solutions(name: &str, file: &str, step: usize, expected: usize) {
    let Some(folder) = data_sets() else { return };
    let items: BTreeMap<String, Item> =
        read(name, &folder).items.into_iter().map(|item| (item.id.clone(), item)).collect();
    let sandbox = sandbox();
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let records: Vec<Json> = text.lines().map(|line| Json::read(line).unwrap()).collect();
    let stable = |record: &&Json| record.get("rerun_stable") == Some(&Json::Bool(true));
    let chosen: Vec<Json> = records.iter().filter(stable).step_by(step).cloned().collect();
    assert_eq!(chosen.len(), expected);
    let work = Arc::new(Mutex::new(chosen));
    let mut hands = tokio::task::JoinSet::new();
    let items = Arc::new(items);
    for _ in 0..2 {
        let (work, items, sandbox) = (work.clone(), items.clone(), sandbox.clone());
        hands.spawn(async move {
            let mut wrong = Vec::new();
            loop {
                let Some(record) = work.lock().unwrap().pop() else { break wrong };
                wrong.extend(differs(&record, &items, &sandbox).await);
            }
        });
    }
    let mut wrong = Vec::new();
    while let Some(done) = hands.join_next().await {
        wrong.extend(done.unwrap());
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// In words, where a record's verdicts are not ours.
async fn differs(
    record: &Json,
    items: &BTreeMap<String, Item>,
    sandbox: &Sandbox,
) -> Option<String> {
    let text = |name: &str| record.get(name).and_then(Json::text).unwrap();
    let passed =
        |name: &str| record.get("rerun").unwrap().get(name).and_then(Json::text) == Some("pass");
    let tests = tests_of(&items[text("task_id")]);
    // What lacks the function is wrong before it is run.
    let program = code::program(text("solution"), &tests.prompt, &tests.entry_point);
    let (got, rule) = match program {
        Some(program) => {
            let grade = code::grade(tests, &program, sandbox).await.unwrap();
            assert_eq!(grade.undecided, None, "{}", text("task_id"));
            let plus = grade.plus.as_ref().unwrap().passes();
            ((grade.base.passes(), plus), grade.rule())
        }
        None => ((false, false), "no function".to_owned()),
    };
    let theirs = (passed("base_status"), passed("plus_status"));
    (got != theirs).then(|| format!("{} {}: {rule}", text("task_id"), text("model")))
}

const HUMANEVAL_SOLUTIONS: &str = "humanevalplus/conformance_model_solutions.jsonl";
const MBPP_SOLUTIONS: &str = "mbppplus/conformance_model_solutions.jsonl";

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_on_humanevalplus_are_evalplus_s() {
    grade_solutions("humanevalplus", HUMANEVAL_SOLUTIONS, 1, 127).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_on_a_third_of_mbppplus_are_evalplus_s() {
    grade_solutions("mbppplus", MBPP_SOLUTIONS, 3, 186).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: run it by hand with --ignored"]
async fn verdicts_on_mbppplus_are_evalplus_s() {
    grade_solutions("mbppplus", MBPP_SOLUTIONS, 1, 557).await;
}

#[test]
fn functions_are_asked_for_as_their_data_sets_do() {
    let Some(folder) = data_sets() else { return };
    for (name, count, inputs) in [
        ("humaneval", 64, None),
        ("humanevalplus", 64, Some(48_977)),
        ("mbppplus", 378, Some(41_015)),
    ] {
        let loaded = read(name, &folder);
        assert_eq!((loaded.items.len(), loaded.damaged.as_slice()), (count, &[][..]), "{name}");
        let mut all = 0;
        for item in &loaded.items {
            let (tests, problem) = (tests_of(item), item.problem());
            assert_eq!(problem.kind, Kind::Code);
            assert_eq!(problem.entry_point.as_deref(), Some(tests.entry_point.as_str()));
            // Nothing but what the question shows.
            let shown = problem.public_checks.iter().all(|check| problem.question.contains(check));
            let checks = if name == "mbppplus" { 1 } else { 0 };
            assert!(shown && problem.public_checks.len() == checks, "{}", item.id);
            assert!(!problem.question.contains(tests.reference.trim()), "{}", item.id);
            if let How::Inputs { base, plus, .. } = &tests.how {
                all += base.len() + plus.len();
            }
        }
        // X8: every input of the file is one that is tested.
        assert_eq!(inputs.unwrap_or(0), all, "{name}");
    }
}

/// A value as Python writes it.
fn python(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(python).collect::<Vec<_>>().join(", ");
    match value {
        Value::None => "None".to_owned(),
        Value::Bool(one) => if *one { "True" } else { "False" }.to_owned(),
        Value::Int(digits) => digits.clone(),
        Value::Float(float) if float.is_nan() => "nan".to_owned(),
        Value::Float(float) if float.is_infinite() => {
            if *float > 0.0 { "inf" } else { "-inf" }.to_owned()
        }
        Value::Float(float) => format!("{float:?}"),
        Value::Complex(re, im) => format!("complex({re:?}, {im:?})"),
        Value::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        Value::List(values) => format!("[{}]", all(values)),
        Value::Tuple(values) if values.len() == 1 => format!("({},)", python(&values[0])),
        Value::Tuple(values) => format!("({})", all(values)),
        Value::Dict(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| python(key) + ": " + &python(value));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
        other => panic!("{other:?}"),
    }
}

/// Compares values with their types, each input once.
const SAME: &str = r#"
from math import inf, nan
wrong = []
def same(one, other):
    if type(one) is not type(other):
        return False
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is dict:
        return same(list(one.items()), list(other.items()))
    return one == other or (one != one and other != other)
def once(inputs):
    return list({repr(list(one)): list(one) for one in inputs}.values())
def compare(name, ours, theirs):
    if not same(once(ours), once(theirs)):
        wrong.append(name)
"#;

/// EvalPlus wrote the inputs of MBPP+ a second time, as Python source: with their tuples and complex
/// numbers, and none twice.
#[tokio::test]
async fn inputs_of_mbppplus_have_their_types() {
    let Some(folder) = data_sets() else { return };
    let mine = read("mbppplus", &folder).items;
    let theirs = theirs(&folder);
    let sandbox = sandbox();
    let mut source = String::from(SAME);
    for item in &mine {
        let How::Inputs { base, plus, .. } = &tests_of(item).how else { panic!() };
        let ours: Vec<Value> = base.iter().chain(plus).cloned().map(Value::List).collect();
        let (ours, theirs) = (python(&Value::List(ours)), &theirs[&item.id]);
        source += &format!("{theirs}\ncompare({:?}, {ours}, inputs)\n", item.id);
    }
    assert_eq!(mine.len(), 378);
    let program = Program::with_answer(source, "wrong");
    let run = sandbox.run(&program, &Limits::default()).await.unwrap();
    assert_eq!(run.outcome, Outcome::Finished { answer: Some("[]".to_owned()) }, "{}", run.stderr);
}

/// The line with the inputs of each task.
fn theirs(folder: &Path) -> BTreeMap<String, String> {
    let path = folder.join("mbppplus/MbppPlus-OriginFmt-v0.2.0.jsonl.gz");
    let text = String::from_utf8(crate::support::gunzip(&path)).unwrap();
    let one = |line: &str| {
        let record = Json::read(line).unwrap();
        let id = format!("Mbpp/{}", record.get("task_id").unwrap().whole().unwrap());
        let test = record.get("test").unwrap().text().unwrap().to_owned();
        (id, test.lines().find(|line| line.starts_with("inputs = ")).unwrap().to_owned())
    };
    text.lines().map(one).collect()
}

#[tokio::test]
async fn original_layouts_are_read_and_need_numpy() {
    let Some(folder) = data_sets() else { return };
    let sandbox = sandbox();
    for (name, file, count) in [
        ("humanevalplus", "humanevalplus/HumanEvalPlus-OriginFmt-v0.1.10.jsonl.gz", 64),
        ("mbppplus", "mbppplus/MbppPlus-OriginFmt-v0.2.0.jsonl.gz", 378),
    ] {
        let loaded = tasks::load(name, Some(&folder.join(file))).unwrap();
        assert_eq!((loaded.items.len(), loaded.damaged.as_slice()), (count, &[][..]), "{name}");
        let own = read(name, &folder).items;
        for (item, own) in loaded.items.iter().zip(&own) {
            assert_eq!((&item.id, &item.entry_point), (&own.id, &own.entry_point));
            assert_eq!(item.public_checks, own.public_checks);
        }
        let item = &loaded.items[0];
        let has_numpy = Program { source: "import numpy".to_owned(), ..Program::default() };
        let has_numpy = sandbox.run(&has_numpy, &Limits::default()).await.unwrap().outcome;
        let judged = tasks::judge(item, &tests_of(item).reference, Some(&sandbox)).await;
        match (has_numpy, judged) {
            (Outcome::Finished { .. }, Ok(judged)) => assert_eq!(judged.verdict, Verdict::Right),
            (Outcome::Raised { .. }, Err(JudgeError::Module { why })) => {
                assert!(why.contains("numpy"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    // A file with the original tests alone is none with more.
    let plain = tasks::load("humanevalplus", Some(&folder.join("humaneval/HumanEval.jsonl")));
    assert!(plain.unwrap_err().to_string().contains("original inputs only"));
}

#[tokio::test]
async fn without_a_sandbox_nothing_is_said() {
    let Some(folder) = data_sets() else { return };
    let item = &read("humaneval", &folder).items[0];
    let judged = tasks::judge(item, &tests_of(item).reference, None).await;
    assert!(matches!(judged, Err(JudgeError::NoSandbox)));
}
