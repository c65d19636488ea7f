//! The command line through its own door: the real binary, its output, its exit codes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support;

/// `unsay` with these words, in an empty folder.
fn unsay(words: &[&str]) -> Output {
    unsay_with(words, "", &[])
}

fn unsay_with(words: &[&str], stdin: &str, variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    unsay_in(folder.path(), words, stdin, variables)
}

fn unsay_in(folder: &Path, words: &[&str], stdin: &str, variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(words)
        .envs(variables.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its words may end before it reads.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", stderr(output)))
}

#[track_caller]
fn assert_code(output: &Output, wanted: i32) {
    assert_eq!(code(output), wanted, "stdout: {}\nstderr: {}", stdout(output), stderr(output));
}

fn json(output: &Output) -> Value {
    assert_code(output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn help_names_every_command() {
    let output = unsay(&["--help"]);
    assert_code(&output, 0);
    for command in [
        "solve", "models", "pull", "methods", "units", "tokenize", "generate", "score", "replay",
        "prompts", "setup", "doctor",
    ] {
        assert!(stdout(&output).contains(command), "{command} is missing");
    }
}

/// An environment that was not finished is not used, and one that cannot be made says what is missing.
#[test]
fn setup_says_what_is_missing_and_leaves_no_half_environment() {
    let cache = tempfile::tempdir().unwrap();
    let variables = [("UNSAY_CACHE", cache.path().to_str().unwrap())];
    let half = cache.path().join("python/bin");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("python3"), "no interpreter").unwrap();
    let output = unsay_with(&["doctor"], "", &variables);
    assert_code(&output, 0);
    assert!(stdout(&output).contains("`unsay setup` installs them"), "{}", stdout(&output));
    let output = unsay_with(&["setup", "--python", "/nowhere/python3"], "", &variables);
    assert_code(&output, 3);
    let said = stderr(&output);
    assert!(said.contains("`/nowhere/python3 -m venv") && said.contains("could not be started"));
    assert!(said.contains("hint: "), "{said}");
    assert!(!cache.path().join("python").exists());
}

#[test]
fn bad_words_are_bad_usage() {
    assert_code(&unsay(&["solv"]), 2);
    assert_code(&unsay(&["solve", "--temperature", "warm", "q"]), 2);
    assert_code(&unsay(&["solve", "--file", "q.txt", "and a question"]), 2);
}

#[test]
fn tokenize_gives_the_fixtures_ids() {
    let output = unsay(&["tokenize", "--json", "12 apples, 305 pears"]);
    let ids = json(&output);
    // Digits stand alone in this vocabulary.
    assert_eq!(ids, serde_json::json!([33, 34, 13855, 28, 216, 35, 32, 37, 41684]));
    let special = json(&unsay(&["tokenize", "--json", "--special", "<|im_end|>"]));
    assert_eq!(special, serde_json::json!([2]));
    let text = json(&unsay(&["tokenize", "--json", "<|im_end|>"]));
    assert!(text.as_array().unwrap().len() > 1, "a special token in a text stays text: {text}");
}

#[test]
fn generate_says_what_score_says() {
    let prompt = "The capital of France is";
    let made = json(&unsay(&["generate", "--prompt", prompt, "--max-tokens", "6", "--json"]));
    let text = made["text"].as_str().unwrap();
    let words = ["score", "--prompt", prompt, "--continuation", text];
    let scored = json(&unsay(&[&words[..], &["--json"]].concat()));
    let made: Vec<_> = made["tokens"].as_array().unwrap().iter().collect();
    let scored: Vec<_> = scored["tokens"].as_array().unwrap().iter().collect();
    assert_eq!(made.len(), 6);
    assert_eq!(scored.len(), 6);
    for (m, s) in made.iter().zip(&scored) {
        assert_eq!(m["id"], s["id"]);
        assert_eq!(m["logprob"], s["logprob"], "bit for bit");
    }
}

#[test]
fn a_model_that_is_not_here_is_missing_and_the_hint_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let cache = empty.path().to_str().unwrap();
    let output = unsay_with(&["tokenize", "--json", "x"], "", &[("UNSAY_CACHE", cache)]);
    assert_code(&output, 3);
    assert!(stderr(&output).contains("unsay pull smollm2-135m-instruct"), "{}", stderr(&output));
    let output =
        unsay(&["score", "--model", "no-such-model", "--prompt", "a", "--continuation", "b"]);
    assert_code(&output, 3);
    assert!(stderr(&output).contains("no-such-model"));
}

#[test]
fn a_damaged_model_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.gguf");
    let whole = std::fs::read(support::default_model()).unwrap();
    std::fs::write(&path, &whole[..1_000_000]).unwrap();
    let output = unsay(&["tokenize", "--json", "x", "--model", path.to_str().unwrap()]);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("broken.gguf"), "{}", stderr(&output));
}

#[test]
fn units_of_a_program_are_printed_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let program = "def clip(x):\n    if x > 9:\n        x = 9\n    y = x + 1\n    return y\n";
    std::fs::write(folder.path().join("clip.py"), program).unwrap();
    let units = json(&unsay_in(folder.path(), &["units", "clip.py", "--json"], "", &[]));
    let lines: Vec<&Value> = units.as_array().unwrap().iter().map(|u| &u["lines"]).collect();
    assert_eq!(lines, [&serde_json::json!([1, 2, 3]), &serde_json::json!([4, 5])]);
    let piped = json(&unsay_with(&["units", "-", "--json"], program, &[]));
    assert_eq!(units, piped);
    assert_code(&unsay_in(folder.path(), &["units", "absent.py"], "", &[]), 2);
}

#[test]
fn solve_on_a_pipe_is_plain_and_ends_with_an_answer_or_a_stated_failure() {
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "solve",
        "--method",
        "direct",
        "--max-tokens",
        "24",
        "--trace",
        "t.jsonl",
        "What is 2 + 3?",
    ];
    let output = unsay_in(folder.path(), &words, "", &[]);
    assert!([0, 1].contains(&code(&output)), "{}", stderr(&output));
    assert!(!stdout(&output).contains('\u{1b}'), "no escape sequences on a pipe");
    assert!(stdout(&output).contains("generated"), "the cost is printed: {}", stdout(&output));
    let trace = std::fs::read_to_string(folder.path().join("t.jsonl")).unwrap();
    let events: Vec<Value> = trace.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(events.first().unwrap()["event"], "began");
    let last = events.last().unwrap()["event"].as_str().unwrap();
    assert_eq!(last, if code(&output) == 0 { "answered" } else { "failed" });
    // A second run does not write over the trace.
    let again = unsay_in(folder.path(), &words, "", &[]);
    assert_code(&again, 2);
    assert_eq!(std::fs::read_to_string(folder.path().join("t.jsonl")).unwrap(), trace);
}

#[test]
fn solve_takes_the_question_from_standard_input_and_prints_one_object() {
    let words = ["solve", "--method", "direct", "--max-tokens", "16", "--json"];
    let output = unsay_with(&words, "What is 2 + 3?\n", &[]);
    assert!([0, 1].contains(&code(&output)), "{}", stderr(&output));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cost = &outcome["cost"];
    let sum = cost["cached_tokens"].as_u64().unwrap() + cost["computed_tokens"].as_u64().unwrap();
    assert_eq!(cost["prompt_tokens"].as_u64().unwrap(), sum);
    assert!(cost["generated_tokens"].as_u64().unwrap() > 0);
    let empty = unsay_with(&words, " \n", &[]);
    assert_code(&empty, 2);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed: &str| {
        let words = [
            "solve",
            "--method",
            "cot",
            "--temperature",
            "0.9",
            "--max-tokens",
            "24",
            "--json",
            "--seed",
            seed,
            "Name a number between 10 and 99 and say why.",
        ];
        let folder = tempfile::tempdir().unwrap();
        let mut words = words.to_vec();
        words.extend(["--trace", "t.jsonl"]);
        unsay_in(folder.path(), &words, "", &[]);
        let trace = std::fs::read_to_string(folder.path().join("t.jsonl")).unwrap();
        let replies: Vec<String> = trace
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap())
            .filter(|e| e["event"] == "replied")
            .map(|e| e["text"].as_str().unwrap().to_owned())
            .collect();
        assert!(!replies.is_empty());
        replies
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn prompts_are_exported_and_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let output = unsay_in(folder.path(), &["prompts", "export", "mine"], "", &[]);
    assert_code(&output, 0);
    let names = unsay(&["prompts", "render"]);
    assert_code(&names, 0);
    let files = std::fs::read_dir(folder.path().join("mine")).unwrap().count();
    assert_eq!(stdout(&names).lines().count(), files);
    assert!(files > 0);
    assert_code(&unsay(&["prompts", "render", "no-such-template"]), 2);
}

#[test]
fn doctor_says_what_the_machine_has() {
    let output = unsay(&["doctor"]);
    assert_code(&output, 0);
    for word in ["python", "landlock", "seccomp", "smollm2-135m-instruct"] {
        assert!(stdout(&output).contains(word), "{word}: {}", stdout(&output));
    }
}

#[test]
fn doctor_recommends_what_fits() {
    for (size, words) in [
        ("8GB", ["qwen2.5-7b-instruct", "skywork-o1-open-prm-qwen-2.5-1.5b", "Q5_K_M"]),
        ("12GB", ["qwen3-8b", "qwen2.5-math-prm-7b", "Q4_K_M"]),
        ("24GB", ["qwen2.5-14b-instruct:q8_0", "qwen2.5-math-prm-7b", "--quantise q4_k"]),
        ("48GB", ["qwen2.5-32b-instruct:q8_0", "qwen2.5-math-prm-7b", "judges by two classes"]),
        ("80GB", ["qwen2.5-72b-instruct:q6_k", "qwen2.5-math-prm-7b", "unsay pull"]),
    ] {
        let output = unsay(&["doctor", "--recommend", "--for", size]);
        assert_code(&output, 0);
        for word in words.iter().chain(&["assumed: ", "8192 positions", "4096", "sum"]) {
            assert!(stdout(&output).contains(word), "{size}: {word}: {}", stdout(&output));
        }
    }
    let little = unsay(&["doctor", "--recommend", "--for", "100MB"]);
    assert_code(&little, 1);
    assert!(stdout(&little).contains("no generator"), "{}", stdout(&little));
    assert_code(&unsay(&["doctor", "--for", "8GB"]), 2);
    assert_code(&unsay(&["doctor", "--recommend", "--for", "-8GB"]), 2);
    let here = unsay(&["doctor", "--recommend"]);
    assert!(stdout(&here).contains("the memory of this machine"), "{}", stdout(&here));
}

#[test]
fn a_model_that_is_quantised_already_is_not_quantised_again() {
    let output = unsay(&["generate", "--prompt", "Hi", "--quantise", "q4_k"]);
    assert_code(&output, 2);
    let said = stderr(&output);
    for word in ["SmolLM2-135M-Instruct.Q4_1.gguf", "quantised already", "leave --quantise away"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// A command whose standard output is this file.
fn unsay_into(path: &str, words: &[&str]) -> Output {
    let out = std::fs::File::options().write(true).open(path).unwrap();
    Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(words)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .output()
        .unwrap()
}

#[test]
fn a_full_disk_is_told_and_nothing_panics() {
    for words in [
        &["models"][..],
        &["methods"],
        &["prompts", "render"],
        &["tokenize", "x"],
        &["tokenize", "--json", "x"],
        &["solve", "--method", "direct", "--max-tokens", "4", "What is 2 + 2?"],
    ] {
        let output = unsay_into("/dev/full", words);
        assert_code(&output, 1);
        assert!(stderr(&output).contains("cannot write to standard output"), "{words:?}");
    }
}

#[test]
fn a_reader_that_went_away_ends_a_command_without_noise() {
    let folder = tempfile::tempdir().unwrap();
    let program = "x = 1\nassert x\n".repeat(20_000);
    std::fs::write(folder.path().join("long.py"), program).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_unsay"))
        .args(["units", "long.py"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe holds far less than what is printed.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert_eq!(stderr(&output), "");
}

#[test]
fn impossible_sizes_are_refused_with_their_limits() {
    let many = unsay(&["generate", "--prompt", "a", "--threads", "100000"]);
    assert_code(&many, 2);
    assert!(stderr(&many).contains("give 1 to"), "{}", stderr(&many));
    assert_code(&unsay(&["generate", "--prompt", "a", "--threads", "0"]), 2);
    let long = unsay(&["generate", "--prompt", "a", "--context", "99999999999"]);
    assert_code(&long, 2);
    assert!(stderr(&long).contains("give 1 to 8192"), "{}", stderr(&long));
    let cold = unsay(&["solve", "--temperature", "-1", "q"]);
    assert_code(&cold, 2);
    assert!(stderr(&cold).contains("0 or more"), "{}", stderr(&cold));
    for name in ["", "1x y", "add(a)", "a-b", "x.y"] {
        assert_code(&unsay(&["solve", "--entry-point", name, "q"]), 2);
    }
}

#[test]
fn a_failed_start_leaves_no_trace_behind() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["solve", "--trace", "t.jsonl", "--model", "no-such-model", "q"];
    assert_code(&unsay_in(folder.path(), &words, "", &[]), 3);
    assert!(!folder.path().join("t.jsonl").exists());
}

#[test]
fn a_reply_that_was_cut_off_gives_no_answer() {
    let question = "What is 12345 * 1000? Work slowly, step by step, and say why.";
    let words =
        ["solve", "--method", "cot", "--temperature", "0", "--max-tokens", "5", "--json", question];
    let output = unsay(&words);
    assert_code(&output, 1);
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["status"], "failed");
    assert_eq!(outcome["why"]["failure"], "format");
    assert_eq!(outcome["format_failures"], 4);
}

/// Several samples: each is what it is alone, the prompt is read once, and the run's log runs again.
#[test]
fn samples_share_their_prompt_and_a_log_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let words = |rest: &[&'static str]| {
        let common = ["generate", "--prompt", "Once upon a time", "--max-tokens", "6"];
        [&common[..], &["--temperature", "0.9", "--seed", "4", "--json"], rest].concat()
    };
    let log = ["--samples", "3", "--top", "2", "--engine-log", "run.jsonl"];
    let three = unsay_in(folder.path(), &words(&log), "", &[]);
    assert_code(&three, 0);
    let three = json(&three);
    let samples = three["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 3);
    let alone = json(&unsay(&words(&["--top", "2"])));
    for part in ["text", "tokens"] {
        assert_eq!(samples[0][part], alone[part], "the first stream is that of one reply");
    }
    assert_ne!(samples[0]["text"], samples[1]["text"]);
    let prompt = &alone["cost"]["prompt_tokens"];
    assert_eq!(&three["cost"]["computed_tokens"], prompt, "one prefill for three");
    let token = &samples[0]["tokens"][0];
    assert_eq!(token["top"].as_array().unwrap().len(), 2);
    assert!(token["rank"].is_u64() && token["mean_logprob"].as_f64().unwrap() < -2.0);

    let replay = |rest: &[&str]| {
        unsay_in(folder.path(), &[&["replay", "run.jsonl"][..], rest].concat(), "", &[])
    };
    let again = replay(&["--json"]);
    assert_code(&again, 0);
    assert_eq!((&json(&again)["calls"], &json(&again)["rows_read"]), (&3.into(), &18.into()));
    // Another type of keys and values gives other bits, and the line where it does is named.
    let other = replay(&["--kv", "f32"]);
    assert!([1, 2].contains(&code(&other)), "{}", stderr(&other));
    assert!(stderr(&other).contains("ran otherwise"), "{}", stderr(&other));
    let twice = unsay_in(folder.path(), &words(&log), "", &[]);
    assert_code(&twice, 2);
    assert!(stderr(&twice).contains("never written over"));
    let none = unsay(&words(&["--samples", "0"]));
    assert_code(&none, 2);
}

#[test]
fn a_continuation_that_the_context_cut_says_so() {
    let cut = unsay(&["generate", "--prompt", "Hi there my friend", "--context", "5"]);
    assert_code(&cut, 0);
    assert!(stderr(&cut).contains("the context is full"), "{}", stderr(&cut));
    let long = "word ".repeat(40);
    let refused = unsay(&["generate", "--prompt", &long, "--context", "20"]);
    assert_code(&refused, 2);
    let said = stderr(&refused);
    assert!(said.contains("at most 20 here") && said.contains("memory for pages"), "{said}");
}
