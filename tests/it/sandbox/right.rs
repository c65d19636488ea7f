//! What right programs get: answers, output, exceptions, checks.

use super::*;

#[tokio::test]
async fn recursion_and_imports_work_in_one_namespace() {
    let ground = Ground::new();
    let source = "
import math, re, json, itertools, collections, functools, random, string, datetime, decimal
from fractions import Fraction
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int = 1

def fact(n):
    return 1 if n < 2 else n * fact(n - 1)

def area(r):
    return math.pi * r ** 2

Pair = collections.namedtuple('Pair', 'a b')
values = [fact(5) for _ in range(2)]
ans = (values, Fraction(1, 3) + 1, len(re.findall('a', 'banana')), Point(2), Pair(1, 2), area(1) > 3)
if __name__ == '__main__':
    ans = ans + (json.loads('[1]'),)
";
    assert_eq!(
        ground.answer(source).await,
        "([120, 120], Fraction(4, 3), 3, Point(x=2, y=1), Pair(a=1, b=2), True, [1])"
    );
}

#[tokio::test]
async fn answers_are_the_text_that_python_prints() {
    let ground = Ground::new();
    for (expression, text) in [
        ("18", "18"),
        ("18.0", "18.0"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("'seven'", "seven"),
        ("True", "True"),
        ("None", "None"),
        ("[1, 'a', 2.5]", "[1, 'a', 2.5]"),
        ("{'b': 1, 'a': (2,)}", "{'b': 1, 'a': (2,)}"),
        ("__import__('fractions').Fraction(6, 4)", "3/2"),
        ("__import__('decimal').Decimal('1.50')", "1.50"),
        ("3 + 4j", "(3+4j)"),
        ("'é\\n\\x00\\ud800'", "é\n\0\\ud800"),
        ("float('nan')", "nan"),
    ] {
        assert_eq!(ground.answer(&format!("ans = {expression}")).await, text, "{expression}");
    }
    assert_eq!(ground.outcome("other = 1").await, Outcome::Finished { answer: None });
}

#[tokio::test]
async fn sets_print_in_the_same_order_every_time() {
    let ground = Ground::new();
    let source = "ans = set('the quick brown fox jumps over'.split())";
    assert_eq!(ground.answer(source).await, ground.answer(source).await);
}

#[tokio::test]
async fn output_input_and_files_work() {
    let ground = Ground::new();
    let program = Program {
        source: "
import sys, os, tempfile
a, b = map(int, input().split())
with open('notes.txt', 'w') as file:
    file.write('x' * 10)
os.makedirs('deep/er')
os.rename('notes.txt', 'deep/er/notes.txt')
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, 'f'), 'w').close()
print('sum', a + b)
print('to stderr', file=sys.stderr)
ans = len(open('deep/er/notes.txt').read()), sorted(os.listdir('.')), input()
"
        .to_owned(),
        result_variable: Some("ans".to_owned()),
        stdin: Some("3 4\nrest".to_owned()),
        ..Program::default()
    };
    let run = ground.run_with(&program, &limits()).await;
    assert_eq!(run.outcome, finished("(10, ['deep'], 'rest')"));
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("sum 7\n", "to stderr\n"));
    assert!(!run.truncated);
}

#[tokio::test]
async fn standard_input_is_empty_unless_given() {
    let ground = Ground::new();
    assert_eq!(
        ground.outcome("x = 1\ninput()").await,
        raised("EOFError", "EOF when reading a line", 2)
    );
}

#[tokio::test]
async fn threads_and_event_loops_work() {
    let ground = Ground::new();
    let source = "
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
async def double(x):
    await asyncio.sleep(0)
    return 2 * x
async def main():
    return await asyncio.gather(*map(double, range(3)))
with ThreadPoolExecutor(4) as pool:
    squares = list(pool.map(lambda x: x * x, range(4)))
ans = [asyncio.run(main()), squares]
def late():
    ans.append('late')
threading.Thread(target=late).start()
";
    assert_eq!(ground.answer(source).await, "[[0, 2, 4], [0, 1, 4, 9], 'late']");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_runs_at_once_do_not_see_each_other() {
    let ground = Ground::new();
    let runs: Vec<_> = (0..8)
        .map(|number| {
            let sandbox = ground.sandbox.clone();
            let source = format!(
                "import os\nopen('mine{number}', 'w').close()\nans = {number} ** 2, os.listdir('.')"
            );
            let program = Program::with_answer(source, "ans");
            tokio::spawn(async move { sandbox.run(&program, &limits()).await.unwrap() })
        })
        .collect();
    for (number, run) in runs.into_iter().enumerate() {
        let expected = format!("({}, ['mine{number}'])", number * number);
        assert_eq!(run.await.unwrap().outcome, finished(&expected));
    }
    let start = std::time::Instant::now();
    let run = ground.run("ans = 1").await;
    println!(
        "a run of nothing: {:.0} ms in all, {:.0} ms of them Python",
        start.elapsed().as_secs_f64() * 1e3,
        run.wall_seconds * 1e3
    );
}

#[tokio::test]
async fn packages_of_the_interpreter_are_found() {
    let ground = Ground::new();
    match ground.outcome("import numpy\nans = int(numpy.arange(4).sum())").await {
        Outcome::Raised { kind, .. } if kind == "ModuleNotFoundError" => {
            println!("skipped: this Python has no numpy");
        }
        outcome => assert_eq!(outcome, finished("6")),
    }
}

#[tokio::test]
async fn exceptions_come_with_their_line_and_traceback() {
    let ground = Ground::new();
    let run = ground.run("def f(x):\n    return 1 / x\n\nans = f(0)\n").await;
    assert_eq!(run.outcome, raised("ZeroDivisionError", "division by zero", 2));
    assert!(run.stderr.starts_with("Traceback (most recent call last):\n  File \"<program>\""));
    assert!(run.stderr.contains("return 1 / x"), "{}", run.stderr);
    let run = ground.run("class Odd(Exception):\n    def __str__(self): 1/0\nraise Odd").await;
    assert_eq!(run.outcome, raised("Odd", "(its text could not be had)", 3));
    let outcome = ground.outcome("def f(n):\n    return f(n + 1)\nf(0)").await;
    assert!(
        matches!(&outcome, Outcome::Raised { kind, .. } if kind == "RecursionError"),
        "{outcome:?}"
    );
    let outcome = ground.outcome("raise PermissionError('not in this bank')").await;
    assert_eq!(outcome, raised("PermissionError", "not in this bank", 1));
}

#[tokio::test]
async fn source_that_is_not_python_is_told_apart() {
    let ground = Ground::new();
    let at = |outcome: Outcome| match outcome {
        Outcome::SyntaxError { line, .. } => line,
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!(at(ground.outcome("x = 1\ny = (2\n").await), Some(2));
    assert_eq!(at(ground.outcome("if True:\nx = 1").await), Some(2));
    at(ground.outcome("ans = 1\0").await);
    at(ground.outcome(&format!("ans = {}1{}", "(".repeat(3000), ")".repeat(3000))).await);
    // One that the program meets while it runs is an exception like any other.
    let outcome = ground.outcome("eval('1 +')").await;
    assert!(matches!(&outcome, Outcome::Raised { kind, .. } if kind == "SyntaxError"));
}

#[tokio::test]
async fn answers_without_a_bounded_text_are_not_cut() {
    let ground = Ground::new();
    let outcome = ground.outcome("ans = 'x' * 300000").await;
    assert!(matches!(&outcome, Outcome::AnswerUnreadable { why } if why.contains("longer")));
    let outcome = ground.outcome("class A:\n    def __str__(self): 1/0\nans = A()").await;
    assert_eq!(
        outcome,
        Outcome::AnswerUnreadable { why: "ZeroDivisionError: division by zero".to_owned() }
    );
    let answer = ground.answer("ans = 7 ** 50000").await;
    assert_eq!(answer.len(), 42255);
    let endless = "class A:\n    def __str__(self):\n        while 1: pass\nans = A()";
    let second = Limits { cpu: Duration::from_secs(1), ..limits() };
    let run = ground.run_with(&Program::with_answer(endless, "ans"), &second).await;
    assert_eq!(run.outcome, Outcome::CpuLimit);
}

#[tokio::test]
async fn a_failed_check_is_told_from_an_exception_of_the_program() {
    let ground = Ground::new();
    let judge = async |source: &str, checks: &str| {
        ground.run_with(&Program::with_checks(source, checks), &limits()).await.outcome
    };
    let source = "def half(x):\n    return 10 / x\n";
    let passed = Outcome::Finished { answer: None };
    assert_eq!(judge(source, "assert half(2) == 5").await, passed);
    assert_eq!(
        judge(source, "assert half(2) == 5\nassert half(5) == 3, 'five'").await,
        Outcome::CheckFailed {
            kind: "AssertionError".to_owned(),
            message: "five".to_owned(),
            line: Some(2)
        }
    );
    assert_eq!(
        judge(source, "assert half(0) == 5").await,
        raised("ZeroDivisionError", "division by zero", 2)
    );
    let outcome = judge(source, "assert double(1) == 2").await;
    assert!(matches!(&outcome, Outcome::CheckFailed { kind, .. } if kind == "NameError"));
    assert_eq!(judge("import sys\nsys.exit(0)", "assert True").await, Outcome::Exited { code: 0 });
    let leaving = "import os\ndef half(x):\n    os._exit(0)";
    assert_eq!(judge(leaving, "assert half(2) == 5").await, Outcome::Exited { code: 0 });
}

#[tokio::test]
async fn checks_are_not_passed_by_changing_the_ground_under_them() {
    let ground = Ground::new();
    let failed = |outcome: &Outcome| matches!(outcome, Outcome::CheckFailed { .. });
    for trick in [
        // Built-ins of its own.
        "import builtins\nbuiltins.all = lambda x: True\nbuiltins.exec = lambda *a: None",
        "__builtins__ = {'all': lambda x: True}",
        "import builtins\nbuiltins.__dict__.pop('BaseException', None)\nbuiltins.AssertionError = OSError",
        // The harness's own functions, by way of the frames.
        "
import sys
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()):
        if type(value) is type(lambda: 0) and frame.f_code.co_filename == '<string>':
            try:
                value.__code__ = (lambda *a, **k: None).__code__
            except Exception:
                pass
    frame = frame.f_back
",
    ] {
        let source = format!("{trick}\ndef f(x):\n    return x");
        let checks = "assert all([f(1) == 2]), 'f'";
        let run = ground.run_with(&Program::with_checks(source, checks), &limits()).await;
        let tampered =
            matches!(&run.outcome, Outcome::Denied { what } if what.contains("own functions"));
        assert!(failed(&run.outcome) || tampered, "{run:?}\n{trick}");
    }
}

#[tokio::test]
async fn the_callers_own_mistakes_are_errors() {
    let ground = Ground::new();
    let program = Program::with_checks("x = 1", "assert x ==");
    let error = ground.sandbox.run(&program, &limits()).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Checks { line: Some(1), .. }), "{error}");
    let setup = Some("def given(): return 4".to_owned());
    let program = Program { setup, ..Program::with_answer("ans = given()", "ans") };
    assert_eq!(ground.run_with(&program, &limits()).await.outcome, finished("4"));
    let program = Program { setup: Some("1/0".to_owned()), ..Program::default() };
    let error = ground.sandbox.run(&program, &limits()).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Setup { what } if what.contains("division")), "{error}");
    let tight = Limits { memory_bytes: 1 << 20, ..limits() };
    let error = ground.sandbox.run(&Program::default(), &tight).await.unwrap_err();
    assert!(matches!(error, SandboxError::Limits { .. }));
}
