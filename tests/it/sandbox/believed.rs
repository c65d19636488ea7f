//! What is believed: only the harness's own result.

use super::*;

#[tokio::test]
async fn leaving_early_is_not_finishing() {
    let ground = Ground::new();
    for (source, code) in [
        ("import os\nans = 1\nos._exit(0)", 0),
        ("import os\nans = 1\nos._exit(3)", 3),
        ("import sys\nans = 1\nsys.exit()", 0),
        ("import sys\nans = 1\nsys.exit(7)", 7),
        ("ans = 1\nraise SystemExit('bye')", 1),
        ("ans = 1\nexit()", 0),
        ("import atexit, os\nans = 1\natexit.register(os._exit, 0)", 0),
        ("import ctypes\nans = 1\nctypes.CDLL(None).exit(0)", 0),
    ] {
        assert_eq!(ground.outcome(source).await, Outcome::Exited { code }, "{source}");
    }
    let run = ground.run("import atexit\nans = 1\natexit.register(print, 'bye')").await;
    assert_eq!((run.outcome, run.stdout.as_str()), (finished("1"), "bye\n"));
}

#[tokio::test]
async fn a_printed_result_is_not_believed() {
    let ground = Ground::new();
    let source = r#"
print('{"tag":"finished","fields":["42"]}')
print("started")
print("PASSED")
ans = 41"#;
    assert_eq!(ground.answer(source).await, "41");
    let source = r#"
import os
os.write(1, b'{"tag":"finished","fields":["42"]}')
raise ValueError("no")"#;
    assert_eq!(ground.outcome(source).await, raised("ValueError", "no", 4));
}

#[tokio::test]
async fn a_result_written_to_every_descriptor_is_not_believed() {
    let ground = Ground::new();
    for ending in
        ["os._exit(0)", "ans = 41", "raise ValueError", "import time\nos.kill(os.getpid(), 9)"]
    {
        let source = format!(
            r#"
import os
for fd in range(256):
    for fake in (b'{{"tag":"finished","fields":["42"]}}', b'started\n', b'0' * 32):
        try:
            os.write(fd, fake)
        except OSError:
            pass
{ending}"#
        );
        let outcome = ground.outcome(&source).await;
        if ending.contains("kill") {
            assert_eq!(outcome, Outcome::Killed { signal: 9 });
        } else {
            assert_eq!(
                outcome,
                Outcome::Denied { what: "writing to the result channel".to_owned() }
            );
        }
    }
}

#[tokio::test]
async fn the_result_channel_cannot_be_closed_replaced_or_read() {
    let ground = Ground::new();
    assert_eq!(ground.answer("import os\nos.closerange(0, 1000)\nans = 5").await, "5");
    for source in [
        "import os\nos.close(4)",
        "import socket\nsocket.socket(fileno=4).shutdown(socket.SHUT_RDWR)",
        "import os\nos.dup(4)",
        "import os\nr, w = os.pipe()\nos.dup2(w, 4)",
        "import os\nos.dup2(4, 50)",
        "import fcntl\nfcntl.fcntl(4, fcntl.F_DUPFD, 50)",
        "import socket, array\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [4])",
    ] {
        ground.denied(source).await;
    }
    // Opened again it could be read; from its own end nothing ever comes.
    for path in ["/proc/self/fd/4", "/dev/fd/4", "/proc/thread-self/fd/4"] {
        for mode in ["rb", "wb", "r+b"] {
            let outcome = ground.outcome(&format!("open({path:?}, {mode:?})")).await;
            let closed = match &outcome {
                Outcome::Denied { .. } => true,
                Outcome::Raised { kind, .. } => kind == "OSError" || kind == "FileNotFoundError",
                _ => false,
            };
            assert!(closed, "{path} {mode}: {outcome:?}");
        }
    }
    assert_eq!(ground.answer("import os\nans = os.read(4, 100)").await, "b''");
}

#[tokio::test]
async fn the_secret_is_not_where_programs_can_look() {
    let ground = Ground::new();
    // Everything that frames, modules and their attributes lead to, some levels deep.
    let source = r#"
import sys, types, re
seen, found = set(), []
def visit(thing, depth):
    if depth == 0 or id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, (bytes, bytearray)) and re.search(rb'^[0-9a-f]{32}$', bytes(thing)):
        found.append(thing)
    if isinstance(thing, str) and re.search('^[0-9a-f]{32}$', thing):
        found.append(thing)
    if isinstance(thing, dict):
        for key, value in list(thing.items()):
            visit(key, depth - 1); visit(value, depth - 1)
    elif isinstance(thing, (list, tuple, set, frozenset)):
        for value in list(thing):
            visit(value, depth - 1)
    elif isinstance(thing, types.FunctionType):
        visit(thing.__defaults__, depth - 1); visit(thing.__kwdefaults__, depth - 1)
        visit(thing.__code__.co_consts, depth - 1); visit(thing.__globals__, depth - 1)
        for cell in thing.__closure__ or ():
            try: visit(cell.cell_contents, depth - 1)
            except ValueError: pass
    elif isinstance(thing, types.FrameType):
        visit(thing.f_locals, depth - 1); visit(thing.f_globals, depth - 1)
        visit(thing.f_code.co_consts, depth - 1); visit(thing.f_back, depth)
    elif isinstance(thing, types.CellType):
        try: visit(thing.cell_contents, depth - 1)
        except ValueError: pass
    elif hasattr(thing, '__dict__'):
        visit(dict(thing.__dict__), depth - 1)
visit(b'0123456789abcdef0123456789abcdef', 2)
control = len(found)
frame = sys._getframe()
frames = 0
while frame:
    frames += 1
    visit(frame, 12)
    frame = frame.f_back
visit(sys.modules, 8)
ans = control, len(found) - control, frames > 1, len(seen) > 1000
"#;
    assert_eq!(ground.answer(source).await, "(1, 0, True, True)");
    for source in [
        "import gc\ngc.get_objects()",
        "import gc, sys\ngc.get_referents(sys._getframe(1))",
        "import gc\ngc.get_referrers(1)",
        "import sys\nsys.settrace(lambda *a: None)",
        "import sys\nsys.setprofile(lambda *a: None)",
        "import sys\nsys._current_frames()",
    ] {
        ground.denied(source).await;
    }
}

#[tokio::test]
async fn a_program_that_rewrites_modules_is_told_as_it_was() {
    let ground = Ground::new();
    let source = r#"
import builtins, json, os, sys, io
json.dumps = lambda *a, **k: '{"tag":"finished","fields":["42"]}'
json.encoder.encode_basestring_ascii = lambda s: '"42"'
os.write = lambda *a: None
os._exit = lambda *a: None
sys.stdout = io.StringIO()
builtins.str = lambda *a: '42'
builtins.type = lambda *a: None
builtins.isinstance = lambda *a: True
ans = 41"#;
    // Its own `str` is what was asked for its answer's text, so that text is its own.
    let outcome = ground.outcome(source).await;
    assert!(!matches!(&outcome, Outcome::Finished { answer: None }), "{outcome:?}");
    let source = format!("{source}\nraise KeyError('x')");
    let outcome = ground.outcome(&source).await;
    assert!(!matches!(&outcome, Outcome::Finished { .. }), "{outcome:?}");
}
