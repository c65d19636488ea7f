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

/// S3 (lm-eval 2140 and 2548, inspect 5303: resuming failed, or ran finished items again): resuming is exact.
/// `UNSAY_KILLS` sets how many runs are killed; a hundred were, by hand.
#[test]
fn s3_a_run_that_is_killed_goes_on_to_the_same_end() {
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

/// S2 (openr 49: a method cost 5.6 times the tokens for 1.4 points, and nothing showed it): what a score cost
/// stands in its row, the sum of its items' own counts.
#[test]
fn s2_cost_stands_beside_every_score() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 3);
    let (table, _) = ended(eval(folder, "run").wait_with_output().unwrap(), 0);
    let head: Vec<&str> =
        table.lines().find(|l| l.starts_with("| method")).unwrap().split('|').collect();
    let text = std::fs::read_to_string(folder.join("run/journal.jsonl")).unwrap();
    let records: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    for method in ["direct", "cot"] {
        let row = table.lines().find(|l| l.starts_with(&format!("| {method} "))).unwrap();
        let row: Vec<&str> = row.split('|').collect();
        for (column, field) in [("prompt", "prompt_tokens"), ("generated", "generated_tokens")] {
            let at = head.iter().position(|cell| cell.trim() == column);
            let at = at.unwrap_or_else(|| panic!("no column {column}: {head:?}"));
            let shown: String = row[at].chars().filter(char::is_ascii_digit).collect();
            let counted: u64 = records
                .iter()
                .filter(|record| record["method"] == method)
                .map(|record| record["cost"][field].as_u64().unwrap())
                .sum();
            assert_eq!(shown, counted.to_string(), "{method} {column}");
        }
    }
}

/// A line that stands twice in a journal (copied by hand, or by a tool) counts once everywhere.
#[test]
fn a_line_that_stands_twice_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 3);
    let (_, _) = ended(eval(folder, "run").wait_with_output().unwrap(), 0);
    let (table, _) = ended(unsay(folder, &["report", "run"]), 0);
    let path = folder.join("run/journal.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}{text}")).unwrap();
    let (again, _) = ended(unsay(folder, &["report", "run"]), 0);
    assert_eq!(table, again);
    let (resumed, _) = ended(unsay(folder, &["resume", "run"]), 0);
    assert_eq!(table, resumed);
    let (trace, _) = ended(unsay(folder, &["trace", "run", "jsonl-1", "--method", "cot"]), 0);
    assert_eq!(trace.matches("· cot · seed").count(), 2, "{trace}");
}

/// The same run, asked for by a file.
#[test]
fn a_plan_may_be_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    questions(folder, 3);
    let plan = "task = \"jsonl\"\ndata = \"beans.jsonl\"\nmethods = [\"direct\", \"cot\"]\nseeds = 2\n\
                limit = 3\nmax_tokens = 8\nthreads = 1\nout = \"run\"\n";
    std::fs::write(folder.join("night.toml"), plan).unwrap();
    let (dry, _) = ended(unsay(folder, &["eval", "--plan", "night.toml", "--dry-run"]), 0);
    assert!(dry.contains("in all   12 to run"), "{dry}");
    let (dry, _) =
        ended(unsay(folder, &["eval", "--plan=night.toml", "--methods=cot", "--dry-run"]), 0);
    assert!(dry.contains("in all   6 to run"), "{dry}");
    ended(unsay(folder, &["eval", "--plan", "night.toml"]), 0);
    // The run is the one that the same words ask for: nothing is left to do, and nothing is refused.
    let (_, said) = ended(eval(folder, "run").wait_with_output().unwrap(), 0);
    assert!(!said.contains("loaded"), "{said}");
    std::fs::write(folder.join("bad.toml"), "seed = 2\n").unwrap();
    let (_, said) = ended(unsay(folder, &["eval", "--plan", "bad.toml"]), 2);
    assert!(said.contains("the key `seed`") && said.contains("seeds"), "{said}");
    let (_, said) = ended(unsay(folder, &["eval", "--plan", "none.toml"]), 2);
    assert!(said.contains("none.toml cannot be read"), "{said}");
}
