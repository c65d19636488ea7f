//! What is closed: processes, sockets, files of others, signals.

use super::*;

#[tokio::test]
async fn no_second_process_can_be_made() {
    let ground = Ground::new();
    for source in [
        "import os\nwhile True: os.fork()",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: pass",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import os\nos.posix_spawn('/bin/true', ['true'], {})",
        "import multiprocessing\nmultiprocessing.Process(target=print).start()",
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'echo hello'])",
        "import os, sys\nos.execv(sys.executable, ['python3', '-c', 'print(1)'])",
        "import os, shutil\nshutil.copyfile('/lib64/ld-linux-x86-64.so.2' if os.path.exists('/lib64/ld-linux-x86-64.so.2') else __import__('sys').executable, 'run')\nos.execv('./run', ['run'])",
    ] {
        let what = ground.denied(source).await;
        assert!(what.starts_with("PermissionError"), "{what}\n{source}");
    }
    let source = "import os\nans = os.system('echo hello')";
    let run = ground.run(source).await;
    assert!(matches!(&run.outcome, Outcome::Finished { answer: Some(code) } if code != "0"));
    assert_eq!(run.stdout, "");
}

#[tokio::test]
async fn a_bomb_of_threads_is_defused() {
    let ground = Ground::new();
    let source = "
import threading
threading.stack_size(32768)
stop = threading.Event()
while True:
    threading.Thread(target=stop.wait, daemon=True).start()";
    match ground.outcome(source).await {
        Outcome::Denied { what } => assert!(what.contains("threads"), "{what}"),
        Outcome::Raised { kind, message, .. } => {
            assert_eq!(
                (kind.as_str(), message.as_str()),
                ("RuntimeError", "can't start new thread")
            )
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[tokio::test]
async fn no_socket_reaches_anything() {
    let ground = Ground::new();
    for source in [
        "import socket\nsocket.socket()",
        "import socket\nsocket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "import socket\nsocket.socket(socket.AF_UNIX)",
        "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "import socket\nsocket.create_connection(('127.0.0.1', 80))",
        "import socket\nsocket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    ] {
        ground.denied(source).await;
    }
}

#[tokio::test]
async fn files_of_others_cannot_be_read() {
    let ground = Ground::new();
    let home = std::env::var("HOME").unwrap_or("/root".to_owned());
    for source in [
        "open('/etc/passwd').read()",
        "open('/etc/shadow').read()",
        "open('/proc/1/environ').read()",
        "open('/proc/self/mem', 'rb')",
        "open('/proc/self/environ').read()",
        "open('PRIVATE').read()",
        "open('../../private').read()",
        "import os\nos.listdir('..')",
        "import os\nos.listdir('/')",
        "import os\nos.symlink('PRIVATE', 'link')\nopen('link').read()",
        "import os\nos.symlink('/', 'root')\nopen('root/etc/passwd').read()",
        "import os\nos.link('PRIVATE', 'hard')\nopen('hard').read()",
        "import os\nos.rename('PRIVATE', 'mine')",
    ] {
        let run = ground.run(source).await;
        let closed = match &run.outcome {
            Outcome::Denied { what } => {
                what.contains("Permission") || what.contains("cross-device")
            }
            // Another file system altogether.
            Outcome::Raised { message, .. } => message.contains("cross-device"),
            _ => false,
        };
        assert!(closed, "{run:?}\n{source}");
    }
    ground.denied(&format!("import os\nos.listdir({home:?})")).await;
}

#[tokio::test]
async fn nothing_outside_the_work_folder_changes() {
    let ground = Ground::new();
    for source in [
        "open('PRIVATE', 'w').write('x')",
        "open('PRIVATE', 'a').write('x')",
        "import os\nos.remove('PRIVATE')",
        "import os\nos.truncate('PRIVATE', 0)",
        "import os\nos.open('PRIVATE', os.O_RDONLY | os.O_TRUNC)",
        "import os\nos.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
        "import os\nos.chmod('PRIVATE', 0o777)",
        "import os\nos.chown('PRIVATE', 1, 1)",
        "import os\nos.utime('PRIVATE')",
        "import os\nos.setxattr('PRIVATE', 'user.x', b'1')",
        "import os\nos.fchmod(os.open(os.__file__, os.O_RDONLY), 0o777)",
        "open('/tmp/unsay-escaped', 'w')",
        "open('/dev/shm/unsay-escaped', 'w')",
        "import os\nos.mkfifo('pipe')",
        "import os\nos.mknod('node')",
        "import os\nos.rmdir(os.getcwd())",
        "import shutil, os\nshutil.rmtree(os.getcwd())",
    ] {
        let run = ground.run(source).await;
        assert!(
            matches!(&run.outcome, Outcome::Denied { .. })
                || matches!(&run.outcome, Outcome::Raised { message, .. } if message.contains("busy")),
            "{run:?}\n{source}"
        );
    }
    assert!(!Path::new("/tmp/unsay-escaped").exists());
    assert!(!Path::new("/dev/shm/unsay-escaped").exists());
}

#[tokio::test]
async fn signals_reach_nobody_else() {
    let ground = Ground::new();
    for target in ["os.getppid()", "1", "0", "-1", "os.getpgid(0) * -1", "2 ** 22 - 1"] {
        for signal in ["SIGKILL", "SIGSTOP", "SIGTERM"] {
            let source = format!("import os, signal\nos.kill({target}, signal.{signal})");
            ground.denied(&source).await;
        }
    }
    let source = "import os, fcntl\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())";
    ground.denied(source).await;
    // To itself a program may send what it likes.
    let outcome = ground.outcome("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)").await;
    assert_eq!(outcome, Outcome::Killed { signal: 15 });
    let outcome = ground.outcome("import os, signal\nos.kill(os.getpid(), signal.SIGXCPU)").await;
    assert_eq!(outcome, Outcome::Killed { signal: 24 });
    assert_eq!(ground.outcome("import os\nos.abort()").await, Outcome::Killed { signal: 6 });
}

#[tokio::test]
async fn raw_system_calls_are_refused_too() {
    let ground = Ground::new();
    let source = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *arguments)
    return os.strerror(ctypes.get_errno()) if result == -1 else result
def named(name, *arguments):
    function = getattr(libc, name)
    result = function(*arguments)
    return os.strerror(ctypes.get_errno()) if result == -1 else result
ans = [
    named('ptrace', 0, 0, 0, 0), named('mount', b'none', b'/', b'tmpfs', 0, 0),
    named('unshare', 0x10000000), named('prctl', 38, 1, 0, 0, 0), named('setuid', 0),
    named('fork'), named('chroot', b'.'), call(425, 1, 0), call(321, 0, 0, 0),
    call(323, 0), call(435, 0, 0), call(298, 0, 0, -1, -1, 0), call(319, b'x', 0),
    call(441, 0, 0, 0, 0, 0, 0), call(10 ** 6),
]
ans = sorted(set(ans))
";
    if cfg!(target_arch = "x86_64") {
        let refused = "['Function not implemented', 'Operation not permitted']";
        assert_eq!(ground.answer(source).await, refused);
    }
    let reading_nothing = "import ctypes\nctypes.string_at(0)";
    assert_eq!(ground.outcome(reading_nothing).await, Outcome::Killed { signal: 11 });
}

#[tokio::test]
async fn a_segmentation_fault_by_recursion_is_no_answer() {
    let ground = Ground::new();
    let source = "
import sys
sys.setrecursionlimit(10 ** 9)
ans = 1
class A:
    def __repr__(self): return repr([self])
repr(A())";
    let outcome = ground.outcome(source).await;
    let stated = matches!(&outcome, Outcome::Killed { signal: 11 } | Outcome::MemoryLimit)
        || matches!(&outcome, Outcome::Raised { kind, .. } if kind == "RecursionError");
    assert!(stated, "{outcome:?}");
}
