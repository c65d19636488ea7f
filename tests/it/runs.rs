//! Runs through the binary's own door: killed at any moment, they end as if they had not been.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Our own questions, a line each, as a user's file holds them.
fn questions(folder: &Path, count: usize) {
    let lines = (1..=count).map(|n| {
        let (a, b) = (7 * n, 3 + n);
        format!(
            "{{\"question\": \"A jar holds {a} beans and {b} more are put in. How many does it hold?\", \
             \"answer\": \"{}\"}}\n",
            a + b
        )
    });
    std::fs::write(folder.join("beans.jsonl"), lines.collect::<String>()).unwrap();
}

const WORDS: [&str; 18] = [
    "eval",
    "--task",
    "jsonl",
    "--data",
    "beans.jsonl",
    "--methods",
    "direct,cot",
    "--seeds",
    "2",
    "--limit",
    "3",
    "--max-tokens",
    "8",
    "--at-once",
    "3",
    "--threads",
    "1",
    "--out",
];

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unsay"));
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn unsay(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

fn eval(folder: &Path, out: &str) -> Child {
    command(folder, &[&WORDS[..], &[out]].concat()).spawn().unwrap()
}

#[track_caller]
fn ended(output: Output, code: i32) -> (String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    (out, err)
}

/// The journal's whole lines without what depends on time and on what ran beside an item, in the order of
/// their keys.
fn journal(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines: Vec<String> = whole
        .lines()
        .map(|line| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            record.as_object_mut().unwrap().remove("seconds").unwrap();
            let cost = record["cost"].as_object_mut().unwrap();
            for field in
                ["cached_tokens", "computed_tokens", "recomputed", "fed_back_tokens", "seconds"]
            {
                cost.remove(field).unwrap();
            }
            record.to_string()
        })
        .collect();
    lines.sort();
    lines
}

/// `UNSAY_KILLS` sets how many runs are killed; a hundred were, by hand.
#[test]
fn a_run_that_is_killed_goes_on_to_the_same_end() {
    let kills: usize = std::env::var("UNSAY_KILLS").map_or(6, |n| n.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 9);
    let begun = Instant::now();
    ended(eval(folder, "whole").wait_with_output().unwrap(), 0);
    let took = begun.elapsed();
    let wanted = journal(&folder.join("whole"));
    assert_eq!(wanted.len(), 2 * 2 * 3);

    // Moments all over the time that a whole run takes, in an order that is not theirs.
    let mut killed = 0;
    let mut runs = 0;
    while killed < kills {
        let out = format!("killed-{runs}");
        runs += 1;
        let mut before: Vec<String> = Vec::new();
        for resumed in 0.. {
            let spread = (killed * 37 + runs * 13 + resumed * 7) % 100;
            let moment = took.mul_f64(spread as f64 / 100.0);
            let mut child = match resumed {
                0 => eval(folder, &out),
                _ => command(folder, &["resume", &out, "--at-once", "3", "--threads", "1"])
                    .spawn()
                    .unwrap(),
            };
            std::thread::sleep(moment.max(Duration::from_millis(5)));
            let over = child.try_wait().unwrap().is_some();
            if !over && killed < kills {
                child.kill().unwrap();
                child.wait().unwrap();
                killed += 1;
            } else {
                let output = child.wait_with_output().unwrap();
                // A run that was killed before its plan was written has nothing to go on with.
                let begun = folder.join(&out).join("plan.json").exists();
                ended(output, if begun { 0 } else { 2 });
            }
            let now = journal(&folder.join(&out));
            assert!(before.iter().all(|line| now.contains(line)), "a finished item was lost");
            before = now;
            if before.len() == wanted.len() || !folder.join(&out).join("plan.json").exists() {
                break;
            }
        }
        if folder.join(&out).join("plan.json").exists() {
            assert_eq!(before, wanted, "run {out}");
        }
    }
}

#[test]
fn a_torn_line_is_cut_off_and_only_its_item_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 5);
    let (table, _) = ended(eval(folder, "run").wait_with_output().unwrap(), 0);
    assert!(table.contains("| direct ") && table.contains("cot against direct"), "{table}");
    let wanted = journal(&folder.join("run"));
    let path = folder.join("run/journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 40]).unwrap();
    let (_, said) = ended(unsay(folder, &["resume", "run"]), 0);
    assert!(said.contains("was not finished") && said.contains("11 of 12 are finished"), "{said}");
    assert_eq!(journal(&folder.join("run")), wanted);
    // Finished: nothing is loaded, and the tables are those of the journal.
    let (again, said) = ended(unsay(folder, &["resume", "run"]), 0);
    assert!(!said.contains("loaded") && !said.contains("plan:"), "{said}");
    let (report, _) = ended(unsay(folder, &["report", "run"]), 0);
    assert_eq!(again, report);
    let (trace, _) =
        ended(unsay(folder, &["trace", "run", "jsonl-1", "--method", "cot", "--seed", "1"]), 0);
    assert!(trace.contains("A jar holds 7 beans"), "{trace}");
    assert!(trace.contains("· cot · seed 1:"), "{trace}");
}

#[test]
fn another_plan_and_a_second_process_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 5);
    let mut first = eval(folder, "run");
    // The journal is there once the first process has it.
    let begun = Instant::now();
    while !folder.join("run/journal.jsonl").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(2));
    }
    let (_, said) = ended(eval(folder, "run").wait_with_output().unwrap(), 2);
    assert!(said.contains("in use by another process"), "{said}");
    assert!(first.wait().unwrap().success());
    for (words, field) in [
        (&["--max-tokens", "13"][..], "most tokens of a reply"),
        (&["--seeds", "3"], "list of seeds"),
        (&["--methods", "direct"], "list of methods"),
        (&["--limit", "2"], "number of items"),
        (&["--kv", "f32"], "kv type"),
    ] {
        // The same words with one of them changed.
        let mut changed: Vec<&str> = WORDS.to_vec();
        match changed.iter().position(|word| *word == words[0]) {
            Some(at) => changed[at + 1] = words[1],
            None => changed.splice(1..1, words.iter().copied()).for_each(drop),
        }
        changed.push("run");
        let (_, said) = ended(unsay(folder, &changed), 2);
        assert!(said.contains(field) && said.contains("holds another run"), "{field}: {said}");
    }
    assert_eq!(journal(&folder.join("run")).len(), 12);
}

#[test]
fn bad_plans_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 2);
    let with = |methods: &'static str| {
        unsay(
            folder,
            &[
                "eval",
                "--task",
                "jsonl",
                "--data",
                "beans.jsonl",
                "--methods",
                methods,
                "--out",
                "run",
            ],
        )
    };
    let (_, said) = ended(with("direct,direct"), 2);
    assert!(said.contains("stands twice"), "{said}");
    let (_, said) = ended(with("no-such-method"), 2);
    assert!(said.contains("no-such-method"), "{said}");
    let (_, said) = ended(with("ralu:units"), 2);
    assert!(said.contains("NAME:OPTION=VALUE"), "{said}");
    assert!(!folder.join("run").exists());
    let (_, said) = ended(unsay(folder, &["resume", "nowhere"]), 2);
    assert!(said.contains("no run to go on with"), "{said}");
    let words = [&WORDS[..], &["run", "--dry-run"]].concat();
    let (out, _) = ended(unsay(folder, &words), 0);
    assert!(out.contains("in all   8 to run"), "{out}");
    assert!(!folder.join("run").exists());
}
