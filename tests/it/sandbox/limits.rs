//! What the limits do.

use super::*;

#[tokio::test]
async fn an_endless_loop_ends_by_the_processor_limit() {
    let ground = Ground::new();
    let second = Limits { cpu: Duration::from_millis(900), ..limits() };
    let run = ground.run_with(&Program::with_answer("while True: pass", "ans"), &second).await;
    assert_eq!(run.outcome, Outcome::CpuLimit);
    println!("ended after {:.2} s of processor time", run.cpu_seconds);
    // Ignoring the kernel's warning does not help.
    let source = "
import signal
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
while True: pass";
    let run = ground.run_with(&Program::with_answer(source, "ans"), &second).await;
    assert_eq!(run.outcome, Outcome::CpuLimit);
    // Nor do threads, whose time counts together.
    let source = "
import threading
def spin():
    while True: pass
for _ in range(4): threading.Thread(target=spin).start()";
    let run = ground.run_with(&Program::with_answer(source, "ans"), &second).await;
    assert_eq!(run.outcome, Outcome::CpuLimit);
}

#[tokio::test]
async fn waiting_forever_ends_by_the_wall_limit() {
    let ground = Ground::new();
    let short = Limits { wall: Duration::from_millis(700), ..limits() };
    for source in [
        "import time\nprint('here', flush=True)\ntime.sleep(10 ** 6)",
        "import os, signal\nprint('here', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\nimport time\ntime.sleep(10**6)",
        "import threading\nprint('here', flush=True)\nthreading.Thread(target=threading.Event().wait).start()",
    ] {
        let run = ground.run_with(&Program::with_answer(source, "ans"), &short).await;
        assert_eq!((run.outcome, run.stdout.as_str()), (Outcome::WallLimit, "here\n"), "{source}");
        ground.check_host();
    }
}

#[tokio::test]
async fn too_much_memory_is_its_own_outcome() {
    let ground = Ground::new();
    let small = Limits { memory_bytes: 256 << 20, ..limits() };
    for source in [
        "ans = bytearray(3 << 30)",
        "ans = [0]\nwhile True: ans += ans",
        "ans = 'x'\nwhile True: ans = ans + ans",
        "keep = []\nwhile True: keep.append(bytearray(1 << 20))",
        "d = {}\nn = 0\nwhile True:\n    d[n] = [n]\n    n += 1",
        "class A:\n    def __str__(self): return 'x' * (3 << 30)\nans = A()",
    ] {
        let run = ground.run_with(&Program::with_answer(source, "ans"), &small).await;
        assert_eq!(run.outcome, Outcome::MemoryLimit, "{source}");
    }
    let caught = "try:\n    bytearray(3 << 30)\nexcept MemoryError:\n    ans = 'went on'";
    assert_eq!(ground.answer(caught).await, "went on");
}

#[tokio::test]
async fn floods_of_output_are_cut_and_never_block() {
    let ground = Ground::new();
    let source = "
import sys
for _ in range(20000):
    sys.stdout.write('o' * 1000)
    sys.stderr.write('e' * 1000)
ans = 'done'";
    let run = ground.run(source).await;
    assert_eq!(run.outcome, finished("done"));
    assert!(run.truncated);
    let kept = Limits::default().output_bytes;
    assert_eq!((run.stdout.len(), run.stderr.len()), (kept, kept));
    // One line of 50 MB, and an endless flood.
    let run = ground.run("print('x' * 50_000_000)\nans = 1").await;
    assert_eq!((run.outcome, run.stdout.len()), (finished("1"), kept));
    let flood = "import sys\nwhile True: sys.stdout.write('y' * 65536)";
    let second = Limits { cpu: Duration::from_secs(1), ..limits() };
    let run = ground.run_with(&Program::with_answer(flood, "ans"), &second).await;
    assert_eq!((run.outcome, run.stdout.len()), (Outcome::CpuLimit, kept));
}

#[tokio::test]
async fn output_that_is_no_text_is_shown_as_far_as_it_is() {
    let ground = Ground::new();
    let run = ground.run("import os\nos.write(1, b'a\\xff\\xfeb\\0c\\xe2\\x82')\nans = 1").await;
    assert_eq!(run.outcome, finished("1"));
    assert_eq!(run.stdout, "a\u{fffd}\u{fffd}b\0c\u{fffd}");
}

#[tokio::test]
async fn files_are_bounded_one_and_all() {
    let ground = Ground::new();
    let what =
        ground.denied("f = open('big', 'wb')\nfor _ in range(1024): f.write(bytes(1 << 20))").await;
    assert!(what.contains("File too large"), "{what}");
    ground.denied("import os\nos.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 1 << 30)").await;
    let bounded = ground
        .sandbox
        .layers()
        .iter()
        .any(|layer| layer.name == "bounded work folder" && layer.is_active());
    if bounded {
        let many = "for n in range(1000): open(f'f{n}', 'wb').write(bytes(1 << 20))";
        let what = ground.denied(many).await;
        assert!(what.contains("No space left"), "{what}");
        ground.denied("for n in range(10 ** 6): open(f'f{n}', 'wb').close()").await;
    }
    let deep = "
import os
for _ in range(5000):
    os.mkdir('d'); os.chdir('d')
ans = 'deep'";
    assert_eq!(ground.answer(deep).await, "deep");
}
