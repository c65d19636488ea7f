//! Programs that a grader believed, or that stopped it. The functions asked for are made up.

use unsay::answer::Verdict;
use unsay::program::sandbox::Sandbox;
use unsay::tasks::code::{How, Oracle, Tests, Value, judge};

use crate::tasks::code::sandbox;

const REFERENCE: &str = "def shifted(xs, by):\n    return [x + by for x in xs]\n";
const TEST: &str = "def check(candidate):\n    xs = [1, 2]\n    assert candidate(xs, 1) == [2, 3]\n    \
    assert candidate(xs, 0.5) == [1.5, 2.5], 'half'\n    assert candidate([], 1) == []\n";

fn whole(number: i64) -> Value {
    Value::Int(number.to_string())
}

fn input(xs: &[i64], by: i64) -> Vec<Value> {
    vec![Value::List(xs.iter().map(|x| whole(*x)).collect()), whole(by)]
}

/// Three inputs of its own, and three that were added.
fn by_inputs() -> Tests {
    let how = How::Inputs {
        base: vec![input(&[1, 2], 1), input(&[], 1), input(&[5], 0)],
        plus: vec![input(&[7, 8], -8), input(&[1 << 40], 1), input(&[3, 1, 2], 10)],
        tolerance: 0.0,
        oracle: Oracle::Equal,
    };
    Tests::new(REFERENCE.to_owned(), "shifted".to_owned(), String::new(), how)
}

fn by_test() -> Tests {
    let how = How::Test { source: TEST.to_owned() };
    Tests::new(REFERENCE.to_owned(), "shifted".to_owned(), String::new(), how)
}

async fn judged(tests: &Tests, program: &str, sandbox: &Sandbox) -> (Verdict, String) {
    let judged = judge(tests, program, sandbox).await.unwrap();
    (judged.verdict, judged.rule)
}

/// A program that does nothing right, however hard it says so.
async fn never_passes(program: &str) {
    let sandbox = sandbox();
    for tests in [by_inputs(), by_test()] {
        let (verdict, rule) = judged(&tests, program, &sandbox).await;
        assert_eq!(verdict, Verdict::Wrong, "{rule}\n{program}");
    }
}

#[tokio::test]
async fn a_right_program_passes_both_kinds_of_tests() {
    let sandbox = sandbox();
    let program = "def shifted(xs, by):\n    print(xs)\n    for at in range(len(xs)):\n        xs[at] += by\n    \
        return xs\n";
    // It changes its argument, of which each call has its own.
    let (verdict, rule) = judged(&by_inputs(), program, &sandbox).await;
    assert_eq!((verdict, rule.as_str()), (Verdict::Right, "base 3 of 3, plus 3 of 3"));
    let pure = "def shifted(xs, by):\n    return list(map(lambda x: x + by, xs))\n";
    let (verdict, rule) = judged(&by_test(), pure, &sandbox).await;
    assert_eq!((verdict, rule.as_str()), (Verdict::Right, "base 3 of 3"));
}

#[tokio::test]
async fn x6_what_is_printed_or_overridden_passes_nothing() {
    let equal = "class Equal(KIND):\n    def __eq__(self, other):\n        return True\n    def __ne__(self, other):\n        \
        return False\n    __hash__ = object.__hash__\ndef shifted(xs, by):\n    return Equal()\n";
    for kind in ["object", "list", "dict", "int", "str"] {
        never_passes(&equal.replace("KIND", kind)).await;
    }
    for program in [
        // The grader's own words, and what it wraps them in.
        "print('base 3 of 3, plus 3 of 3')\ndef shifted(xs, by):\n    print('passed')\n    return 'passed'\n",
        // Names that whoever compares may use.
        "import builtins, json, math, random, operator\ntrue = lambda *a, **k: True\nbuiltins.all = true\n\
         builtins.isinstance = true\nbuiltins.type = true\njson.loads = true\nmath.isclose = true\n\
         operator.eq = true\ndef shifted(xs, by):\n    builtins.len = true\n    return 1\n",
        // The driver's own functions.
        "import sys\ndriver = sys.modules['unsay_driver']\ndef shifted(xs, by):\n    return 1\n\
         driver.outputs = lambda: 'passed'\ndriver.replay = lambda: 'passed'\n\
         driver.timed = lambda *a: ('[\"value\",{\"x\":\"passed\"},0.0]', True)\n",
        "import sys\ndriver = sys.modules['unsay_driver']\ndef shifted(xs, by):\n    return 1\n\
         driver.outputs = lambda: 'p[\"more\"]\\n'\n",
        // The test's own name, and the check's.
        "def check(candidate):\n    pass\ndef shifted(xs, by):\n    global shifted, check\n    check = print\n    \
         return None\n",
        // Expected outputs, looked for wherever the process could hold them.
        "import gc, sys\ndef shifted(xs, by):\n    found = []\n    for module in list(sys.modules.values()):\n        \
         found += [v for v in vars(module).values() if isinstance(v, dict) and 'inputs' in v]\n    \
         job = found[0]\n    return job.get('expected', job.get('outputs', job.get('results', 'none')))\n",
        "import os\ndef shifted(xs, by):\n    for folder, _, files in os.walk('.'):\n        for name in files:\n            \
         return eval(open(os.path.join(folder, name)).read())\n",
        "def shifted(xs, by):\n    import gc\n    return [o for o in gc.get_objects() if type(o) is list][0]\n",
        // An end before the end.
        "import os\ndef shifted(xs, by):\n    os._exit(0)\n",
        "import sys\ndef shifted(xs, by):\n    sys.exit(0)\n",
        "import atexit, os\natexit.register(os._exit, 0)\ndef shifted(xs, by):\n    return 0\n",
        "raise SystemExit(0)\ndef shifted(xs, by):\n    return 0\n",
        // Right but for the type, or for the last element.
        "def shifted(xs, by):\n    return tuple(x + by for x in xs)\n",
        "def shifted(xs, by):\n    return (x + by for x in xs)\n",
        "def shifted(xs, by):\n    return str([x + by for x in xs])\n",
        "def shifted(xs, by):\n    return [x + by for x in xs][:-1]\n",
        // Nothing to run.
        "def other(xs, by):\n    return 0\n",
        "def shifted(xs, by) return 0\n",
        "shifted = 3\n",
        "",
    ] {
        never_passes(program).await;
    }
}

#[tokio::test]
async fn x3_x4_x5_what_ends_a_program_is_told_apart_from_wrong() {
    let sandbox = sandbox();
    let at_three = |body: &str| {
        format!(
            "def shifted(xs, by):\n    if xs == [1099511627776]:\n        {body}\n    return [x + by for x in xs]\n"
        )
    };
    for (program, rule) in [
        (at_three("while True: pass"), "time at plus input 2; base 3 of 3, plus 1 of 3"),
        (
            at_three(
                "while True:\n            try:\n                while True: pass\n            except Exception: pass",
            ),
            "time at plus input 2; base 3 of 3, plus 1 of 3",
        ),
        (at_three("return [0] * 10 ** 12"), "memory at plus input 2; base 3 of 3, plus 1 of 3"),
        (at_three("nothing"), "exception NameError at plus input 2; base 3 of 3, plus 2 of 3"),
        (at_three("exit()"), "exception SystemExit at plus input 2; base 3 of 3, plus 2 of 3"),
        (at_three("import os; os._exit(7)"), "exit with code 7; base 3 of 3, plus 0 of 3"),
        (
            at_three("return shifted(xs, by)"),
            "exception RecursionError at plus input 2; base 3 of 3, plus 2 of 3",
        ),
        (at_three("return []"), "wrong at plus input 2; base 3 of 3, plus 2 of 3"),
        (
            at_three("return list(range(10 ** 7))"),
            "an output too large at plus input 2; base 3 of 3, plus 2 of 3",
        ),
        (
            "def shifted(xs, by):\n    return undefined\n".to_owned(),
            "exception NameError at base input 1; base 0 of 3, plus 0 of 3",
        ),
        (
            "import nowhere\ndef shifted(xs, by):\n    return xs\n".to_owned(),
            "exception ModuleNotFoundError; base 0 of 3, plus 0 of 3",
        ),
    ] {
        let (verdict, said) = judged(&by_inputs(), &program, &sandbox).await;
        assert_eq!((verdict, said.as_str()), (Verdict::Wrong, rule), "{program}");
    }
    // A program that sleeps takes no time that counts.
    let sleepy = at_three("import time; time.sleep(1.2)");
    assert_eq!(judged(&by_inputs(), &sleepy, &sandbox).await.0, Verdict::Right);
}

#[tokio::test]
async fn x7_x8_whole_programs_meet_all_tests() {
    let sandbox = sandbox();
    // X7: a fence within the code.
    let fenced = "```python\ndef shifted(xs, by):\n    \"\"\"\n    >>> shifted([1], 1)\n    ``` and so on\n    \"\"\"\n    \
        return [x + by for x in xs]\n```\nDone.";
    assert_eq!(judged(&by_inputs(), fenced, &sandbox).await.0, Verdict::Right);
    // X8: what passes the original tests may fail those that were added.
    let small = "def shifted(xs, by):\n    return [x + by for x in xs if x < 1 << 40]\n";
    let (verdict, rule) = judged(&by_inputs(), small, &sandbox).await;
    assert_eq!(
        (verdict, rule.as_str()),
        (Verdict::Wrong, "wrong at plus input 2; base 3 of 3, plus 2 of 3")
    );
}

#[tokio::test]
async fn a_reference_that_fails_decides_nothing() {
    let sandbox = sandbox();
    let How::Inputs { base, plus, tolerance, oracle } = by_inputs().how else { panic!() };
    let how = How::Inputs { base, plus, tolerance, oracle };
    let reference = "def shifted(xs, by):\n    return xs[0]\n".to_owned();
    let tests = Tests::new(reference, "shifted".to_owned(), String::new(), how);
    let (verdict, rule) = judged(&tests, REFERENCE, &sandbox).await;
    assert_eq!(verdict, Verdict::Undecided);
    assert!(rule.contains("exception IndexError at input 2 (base)"), "{rule}");
}
