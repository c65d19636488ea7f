//! Interpreters that stand ready: each takes one program, and nothing of it is left for the next.

use std::collections::HashSet;

use super::*;

/// A sandbox in which up to `standing` interpreters wait.
fn ready(root: &tempfile::TempDir, standing: usize) -> Sandbox {
    std::fs::create_dir(root.path().join("work")).unwrap();
    Sandbox::find(Options { standing, ..options(root.path()) }).unwrap()
}

/// Waits until so many work folders are there, each of an interpreter that stands ready.
async fn until_ready(root: &tempfile::TempDir, count: usize) {
    let start = std::time::Instant::now();
    while std::fs::read_dir(root.path().join("work")).unwrap().count() != count
        || processes_of(root.path()).len() < 3 * count
    {
        assert!(start.elapsed() < Duration::from_secs(60), "{count} never stood ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn run(sandbox: &Sandbox, source: &str) -> Outcome {
    let program = Program::with_answer(source, "ans");
    sandbox.run(&program, &limits()).await.unwrap().outcome
}

#[tokio::test]
async fn nothing_leaks_from_one_run_into_the_next() {
    let root = tempfile::tempdir().unwrap();
    let sandbox = ready(&root, 1);
    // Whatever a program does to its interpreter, folder or environment, the next finds nothing of it.
    let traces = "import builtins, os, sys\n\
         ans = [len(os.listdir()), hasattr(builtins, 'mark'), 'mark' in sys.modules, \
         'MARK' in os.environ, sum([1, 2]), sys.getrecursionlimit(), os.getcwd() == os.environ['HOME']]";
    let clean = "[0, False, False, False, 3, 1000, True]";
    let mut folders = HashSet::new();
    for spoiler in [
        "ans = 1",
        "open('mark', 'w').write('x')\nans = 1",
        "import builtins\nbuiltins.mark = 1\nbuiltins.sum = lambda x: 9\nans = 1",
        "import os, sys\nsys.modules['mark'] = sys\nos.environ['MARK'] = '1'\nans = 1",
        "import sys\nsys.setrecursionlimit(5000)\nans = 1",
        "import os\nos._exit(0)",
        "raise SystemExit(3)",
        "x = bytearray(1 << 40)",
    ] {
        run(&sandbox, spoiler).await;
        until_ready(&root, 1).await;
        assert_eq!(run(&sandbox, traces).await, finished(clean), "after {spoiler:?}");
        until_ready(&root, 1).await;
        let here = std::fs::read_dir(root.path().join("work")).unwrap().next().unwrap().unwrap();
        assert!(folders.insert(here.file_name()), "a folder is used twice");
    }
}

#[tokio::test]
async fn a_standing_interpreter_runs_programs_as_a_new_one_does() {
    let root = tempfile::tempdir().unwrap();
    let sandbox = ready(&root, 1);
    run(&sandbox, "ans = 0").await;
    let cases: Vec<(&str, Outcome)> = vec![
        ("ans = 6 * 7", finished("42")),
        ("x = 1", Outcome::Finished { answer: None }),
        ("ans = 1 / 0", raised("ZeroDivisionError", "division by zero", 1)),
        ("def f(:", Outcome::SyntaxError { message: "invalid syntax".into(), line: Some(1) }),
        ("import sys\nsys.exit(3)", Outcome::Exited { code: 3 }),
        ("ans = bytearray(1 << 40)", Outcome::MemoryLimit),
    ];
    for (source, outcome) in cases {
        until_ready(&root, 1).await;
        assert_eq!(run(&sandbox, source).await, outcome, "{source}");
    }
    until_ready(&root, 1).await;
    let denied = run(&sandbox, "open('/etc/passwd')").await;
    assert!(matches!(denied, Outcome::Denied { .. }), "{denied:?}");
    // Input, setup and checks arrive with the program, a long one too.
    until_ready(&root, 1).await;
    let program = Program {
        source: format!("# {}\nans = input() + input() + before", "x".repeat(1 << 20)),
        result_variable: Some("ans".into()),
        stdin: Some("one\ntwo\n".into()),
        setup: Some("before = 'three'".into()),
        checks: Some("assert ans == 'onetwothree'".into()),
    };
    let ended = sandbox.run(&program, &limits()).await.unwrap();
    assert_eq!(ended.outcome, finished("onetwothree"));
    assert_eq!(ended.answer_type.as_deref(), Some("str"));
    // Its time counts from when it was given the program, not from when it stood up.
    until_ready(&root, 1).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    let program = Program::with_answer("ans = 1", "ans");
    let ended = sandbox.run(&program, &limits()).await.unwrap();
    assert!(ended.wall_seconds < 0.6, "{ended:?}");
}

#[tokio::test]
async fn other_limits_are_never_served_by_what_stands_ready() {
    let root = tempfile::tempdir().unwrap();
    let sandbox = ready(&root, 1);
    run(&sandbox, "ans = 0").await;
    until_ready(&root, 1).await;
    let hungry = Program::with_answer("ans = len(bytearray(200 << 20))", "ans");
    let small = Limits { memory_bytes: 128 << 20, ..limits() };
    assert_eq!(sandbox.run(&hungry, &small).await.unwrap().outcome, Outcome::MemoryLimit);
    // What stands ready follows the limits that were asked for last.
    until_ready(&root, 1).await;
    assert_eq!(sandbox.run(&hungry, &limits()).await.unwrap().outcome, finished("209715200"));
    until_ready(&root, 1).await;
}

#[tokio::test]
async fn one_that_was_ended_while_it_stood_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let sandbox = ready(&root, 1);
    run(&sandbox, "ans = 0").await;
    until_ready(&root, 1).await;
    for pid in processes_of(root.path()) {
        // SAFETY: numbers only; the processes are this test's own.
        unsafe { libc::kill(pid as i32, libc::SIGKILL) };
    }
    assert_eq!(run(&sandbox, "ans = 5").await, finished("5"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_each_get_their_own_and_nothing_stays_behind() {
    let root = tempfile::tempdir().unwrap();
    let sandbox = ready(&root, 2);
    let runs: Vec<_> = (0..24)
        .map(|n| {
            let sandbox = sandbox.clone();
            tokio::spawn(async move {
                let source = format!("open('f', 'w').write('{n}')\nans = open('f').read()");
                run(&sandbox, &source).await
            })
        })
        .collect();
    for (n, one) in runs.into_iter().enumerate() {
        assert_eq!(one.await.unwrap(), finished(&n.to_string()));
    }
    until_ready(&root, 2).await;
    drop(sandbox);
    let start = std::time::Instant::now();
    while !processes_of(root.path()).is_empty()
        || std::fs::read_dir(root.path().join("work")).unwrap().count() > 0
    {
        assert!(start.elapsed() < Duration::from_secs(60), "something stays behind");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_type_of_the_answer_is_told() {
    let ground = Ground::new();
    for (value, text, kind) in [
        ("1", "1", "int"),
        ("True", "True", "bool"),
        ("0.5", "0.5", "float"),
        ("__import__('fractions').Fraction(1, 3)", "1/3", "Fraction"),
        ("'1'", "1", "str"),
        ("(1, 2)", "(1, 2)", "tuple"),
        ("[1]", "[1]", "list"),
        ("{1: 2}", "{1: 2}", "dict"),
        ("None", "None", "NoneType"),
        ("type('int', (), {'__str__': lambda self: '7'})()", "7", "int"),
    ] {
        let ended = ground.run(&format!("ans = {value}")).await;
        assert_eq!(ended.outcome, finished(text));
        assert_eq!(ended.answer_type.as_deref(), Some(kind), "{value}");
    }
    let ended = ground.run("x = 1").await;
    assert_eq!((ended.outcome, ended.answer_type), (Outcome::Finished { answer: None }, None));
    assert_eq!(ground.run("ans = 1 / 0").await.answer_type, None);
}
