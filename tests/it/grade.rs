//! `unsay grade` and `unsay eval` on tasks, through the binary's own door.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn unsay(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unsay"));
    command.args(words).current_dir(folder).env_remove("UNSAY_DATA").stdin(Stdio::null());
    command.output().unwrap()
}

#[track_caller]
fn ended(output: Output, code: i32) -> (Vec<Value>, String, String) {
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    let lines = out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (lines, out, err)
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn replies_are_graded_in_their_order() {
    let replies = concat!(
        r#"{"question": "2+2?", "answer": "4", "response": "It is \\boxed{3}, no: \\boxed{4}."}"#,
        "\n",
        r#"{"question": "2+2?", "answer": "4", "response": "<think>4</think> The answer is 5."}"#,
        "\n{\"question\": \"torn\n\n",
        r#"{"question": "2+2?", "answer": "4", "response": "I do not know."}"#,
        "\n",
        r#"{"question": "2+2?", "answer": "4"}"#,
        "\n",
        r#"{"id": "x", "question": "half?", "answer": "0.5", "response": "so\n\n#### 1/2"}"#,
    );
    let folder = folder(&[("replies.jsonl", replies)]);
    let (lines, _, err) = ended(unsay(folder.path(), &["grade", "jsonl", "replies.jsonl"]), 0);
    let told: Vec<(i64, &str, &str)> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or("-");
            (line["line"].as_i64().unwrap(), text("verdict"), text("found_by"))
        })
        .collect();
    assert_eq!(
        told,
        [
            (1, "right", "boxed"),
            (2, "wrong", "phrase"),
            (5, "undecided", "-"),
            (7, "right", "hashes"),
        ]
    );
    assert_eq!(lines[3]["id"], "x");
    assert!(err.contains("replies.jsonl:3: left out") && err.contains("replies.jsonl:6"), "{err}");
    assert!(err.contains("right 2 of 4, wrong 1, undecided 1; 2 lines could not be read"), "{err}");
}

#[test]
fn a_reply_that_is_stored_without_its_question_is_found_by_its_id() {
    let data = r#"{"key": 7, "prompt": "No commas.", "instruction_id_list": ["punctuation:no_comma", "startend:quotation"], "kwargs": [{}, {}]}"#;
    let replies = "{\"key\": 7, \"response\": \"Sure.\\n\\\"So be it.\\\"\"}\n{\"key\": 8, \"response\": \"x\"}\n";
    let folder = folder(&[("data.jsonl", data), ("replies.jsonl", replies)]);
    let words = ["grade", "ifeval", "replies.jsonl", "--data", "data.jsonl"];
    let (lines, _, err) = ended(unsay(folder.path(), &words), 0);
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["strict"], serde_json::json!([true, false]));
    assert_eq!(lines[0]["loose"], serde_json::json!([true, true]));
    assert_eq!(lines[0]["verdict"], "wrong");
    assert_eq!(lines[0]["scores"]["loose prompts"], serde_json::json!({"sum": 1.0, "of": 1.0}));
    assert!(err.contains("replies.jsonl:2: left out"), "{err}");
}

#[test]
fn pairs_are_compared_as_values() {
    let pairs = "{\"gold\": \"\\\\frac{1}{2}\", \"answer\": 0.5}\n{\"gold\": \"3.14\", \"answer\": \"\\\\pi\"}\n\
                 {\"gold\": \"x\"}\n";
    let folder = folder(&[("pairs.jsonl", pairs)]);
    let words = ["grade", "math", "--pairs", "pairs.jsonl"];
    let (lines, _, err) = ended(unsay(folder.path(), &words), 0);
    let verdicts: Vec<&str> = lines.iter().map(|l| l["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["right", "wrong"]);
    assert!(err.contains("pairs.jsonl:3: left out: it has no `answer`"), "{err}");
}

#[test]
fn what_cannot_be_graded_is_said() {
    let folder = folder(&[("empty.jsonl", ""), ("odd.jsonl", "{\"a\": 1}\n")]);
    for (words, code, told) in [
        (&["grade", "none", "odd.jsonl"][..], 2, "there is no task `none`"),
        (&["grade", "gsm8k", "missing.jsonl"][..], 2, "missing.jsonl"),
        (&["grade", "gsm8k", "empty.jsonl"][..], 2, "has nothing to grade"),
        (&["grade", "gsm8k", "odd.jsonl"][..], 2, "has nothing to grade"),
        (&["grade", "gsm8k", "--pairs", "odd.jsonl"][..], 2, "the task is `math`"),
        (&["eval", "--task", "gsm8k", "--out", "o"][..], 3, "UNSAY_DATA"),
    ] {
        let (_, _, err) = ended(unsay(folder.path(), words), code);
        assert!(err.contains(told), "{words:?}: {err}");
    }
}

/// One run on instructions: shares stand in the table; a changed file is refused by the same run; a method
/// that cannot answer so is refused before the run begins.
#[test]
fn a_run_on_instructions_tells_shares_and_refuses_other_data() {
    let item = |key: u32| {
        format!(
            "{{\"key\": {key}, \"prompt\": \"Say a word {key}.\", \"instruction_id_list\": \
             [\"punctuation:no_comma\", \"startend:quotation\"], \"kwargs\": [{{}}, {{}}]}}\n"
        )
    };
    let data: String = (1..=3).map(item).collect();
    let folder = folder(&[("data.jsonl", &data)]);
    let words =
        ["eval", "--task", "ifeval", "--data", "data.jsonl", "--max-tokens", "6", "--out", "run"];
    let with = |more: &[&'static str]| [&words[..], more].concat();
    let (_, _, err) = ended(unsay(folder.path(), &with(&["--methods", "ralu"])), 2);
    assert!(err.contains("ralu cannot answer ifeval"), "{err}");
    let direct = with(&["--methods", "direct", "--limit", "2"]);
    let (_, out, _) = ended(unsay(folder.path(), &direct), 0);
    assert!(out.contains("2 of 541 items × 1 seed(s)"), "{out}");
    let share = out.lines().find(|line| line.contains("strict instructions")).unwrap();
    assert!(share.contains(" of 4"), "{share}");
    let journal = std::fs::read_to_string(folder.path().join("run/journal.jsonl")).unwrap();
    let record: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    assert_eq!(record["scores"]["loose instructions"]["of"], 2.0);
    std::fs::write(folder.path().join("data.jsonl"), data + &item(4)).unwrap();
    let (_, _, err) = ended(unsay(folder.path(), &["resume", "run"]), 2);
    assert!(err.contains("data.jsonl changed since the run was begun"), "{err}");
    let (_, _, err) = ended(unsay(folder.path(), &direct), 2);
    assert!(err.contains("its data file is"), "{err}");
}

/// The weights that an answer came from are in its key: a quantised model is another model.
#[test]
fn a_run_names_how_its_weights_were_made() {
    let folder = folder(&[("mine.jsonl", "{\"question\": \"2+2?\", \"answer\": \"4\"}\n")]);
    let run = |more: &[&'static str], out: &'static str| {
        let words = ["eval", "--task", "jsonl", "--data", "mine.jsonl", "--methods", "direct"];
        let rest = ["--max-tokens", "4", "--out", out, "--thinking-budget", "3"];
        unsay(folder.path(), &[&words[..], &rest[..], more].concat())
    };
    // The default model has no tokens of thinking, and is quantised already.
    let (_, _, err) = ended(run(&[], "a"), 2);
    assert!(err.contains("think"), "{err}");
    let words =
        ["eval", "--task", "jsonl", "--data", "mine.jsonl", "--methods", "direct", "--out", "b"];
    let quantised = [&words[..], &["--quantise", "q8_0"]].concat();
    let (_, _, err) = ended(unsay(folder.path(), &quantised), 2);
    assert!(err.contains("quantised"), "{err}");
}

fn options(lines: &[&str]) -> String {
    let line = |reply: &&str| {
        let asked =
            "\"question\": \"Which?\", \"options\": [\"A)5(√3 + 1)\", \"B)6\"], \"correct\": \"A\"";
        format!("{{{asked}, \"response\": {}}}\n", serde_json::json!(reply))
    };
    lines.iter().map(line).collect()
}

/// The first letter of the alphabet is an option like the others, and an option that is taken back is none.
#[test]
fn options_are_named_in_many_ways() {
    let replies = [
        ("The answer is A.", "right"),
        ("Answer: A", "right"),
        ("A) 5(√3 + 1)", "right"),
        ("5(√3 + 1)", "right"),
        ("The answer is B.", "wrong"),
        ("<Answer>A) or B)</Answer>", "undecided"),
        ("<Answer>A) is wrong</Answer>", "undecided"),
        ("I cannot tell.", "undecided"),
    ];
    let folder = folder(&[("r.jsonl", &options(&replies.map(|(reply, _)| reply)))]);
    let (lines, ..) = ended(unsay(folder.path(), &["grade", "aqua", "r.jsonl"]), 0);
    for ((reply, verdict), line) in replies.iter().zip(&lines) {
        assert_eq!(line["verdict"], *verdict, "{reply}: {line}");
    }
    assert_eq!(lines.len(), replies.len());
}

#[test]
fn settings_that_draw_nothing_and_unknown_traces_are_refused() {
    let folder = folder(&[
        ("mine.jsonl", "{\"question\": \"2+2?\", \"answer\": \"4\"}\n"),
        ("ids.jsonl", "{\"id\": \"gsm8k-1\", \"response\": \"4\"}\n"),
        ("no.jsonl", "{}\n"),
    ]);
    let eval =
        ["eval", "--task", "jsonl", "--data", "mine.jsonl", "--methods", "direct", "--out", "run"];
    let with = |more: &[&'static str]| [&eval[..], more].concat();
    for (words, code, told) in [
        (with(&["--temperature", "nan"]), 2, "--temperature is NaN"),
        (with(&["--max-tokens", "0"]), 2, "--max-tokens is 0"),
        (with(&["--seeds", "0"]), 2, "seeds"),
        (with(&["--first-seed", "18446744073709551615", "--seeds", "2"]), 2, "not 2 seeds"),
        (vec!["eval", "--task", "jsonl", "--out", "run"], 2, "must be named"),
        (
            vec!["eval", "--task", "gsm8k", "--data", "nowhere", "--out", "run"],
            2,
            "nowhere is neither",
        ),
        (vec!["tasks", "--data", "nowhere"], 2, "nowhere is neither"),
        (vec!["grade", "gsm8k", "ids.jsonl"], 2, "UNSAY_DATA"),
        (vec!["grade", "math", "--pairs", "no.jsonl"], 2, "has nothing to grade"),
    ] {
        let (_, _, err) = ended(unsay(folder.path(), &words), code);
        assert!(err.contains(told), "{words:?}: {err}");
    }
    assert!(!folder.path().join("run").exists());
    ended(unsay(folder.path(), &with(&["--max-tokens", "4"])), 0);
    for (words, told) in [
        (["trace", "run", "jsonl-1", "--seed", "9"], "no seed 9"),
        (["trace", "run", "jsonl-1", "--method", "zz"], "no method `zz`"),
    ] {
        let (_, _, err) = ended(unsay(folder.path(), &words), 2);
        assert!(err.contains(told), "{words:?}: {err}");
    }
}
