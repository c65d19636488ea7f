//! What the parent does: starting, ending, naming what is missing.

use std::io::Read;
use std::process::{Command, Stdio};

use super::*;

#[tokio::test]
async fn a_run_that_nobody_waits_for_is_ended() {
    let ground = Ground::new();
    let program = Program::with_answer("while True: pass", "ans");
    {
        let limits = limits();
        let mut run = Box::pin(ground.sandbox.run(&program, &limits));
        // Until the run has its processes.
        while processes_of(ground.root.path()).is_empty() {
            let pending = tokio::time::timeout(Duration::from_millis(5), &mut run).await;
            assert!(pending.is_err(), "{pending:?}");
        }
    }
    wait_until("the abandoned run is gone", || {
        processes_of(ground.root.path()).is_empty()
            && std::fs::read_dir(ground.root.path().join("work")).unwrap().count() == 0
    });
}

/// Turns until something holds, with a bound that only a fault reaches.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

/// Not a test of its own: what `nothing_outlives_a_killed_host` starts, and kills.
#[tokio::test]
#[ignore = "started by another test"]
async fn host_to_be_killed() {
    let Some(root) = std::env::var_os("UNSAY_TEST_ROOT") else { return };
    let sandbox = Sandbox::find(options(Path::new(&root))).unwrap();
    println!("running");
    let program = Program::with_answer("while True: pass", "ans");
    let _ = sandbox.run(&program, &Limits { cpu: Duration::from_secs(300), ..limits() }).await;
}

#[test]
fn nothing_outlives_a_killed_host() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["sandbox::parent::host_to_be_killed", "--exact", "--ignored", "--nocapture"])
        .env("UNSAY_TEST_ROOT", root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = host.stdout.take().unwrap();
    let mut said = String::new();
    while !said.contains("running") {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{said}");
        said.push(byte[0] as char);
    }
    // The host itself names the folder in its environment; keeper, supervisor and Python are to come.
    wait_until("the run has its processes", || processes_of(root.path()).len() >= 4);
    host.kill().unwrap();
    host.wait().unwrap();
    wait_until("the run is gone with its host", || processes_of(root.path()).is_empty());
    wait_until("the work folder is gone", || std::fs::read_dir(&work).unwrap().count() == 0);
}

#[test]
fn required_layers_are_in_force_and_named() {
    let ground = Ground::new();
    for layer in ground.sandbox.layers() {
        println!("{layer:?}");
        assert!(layer.is_active() || !layer.required, "{layer:?}");
    }
    for name in ["landlock", "seccomp", "resource limits", "pid namespace"] {
        assert!(ground.sandbox.layers().iter().any(|layer| layer.name == name), "{name}");
    }
}

#[test]
fn an_interpreter_behind_a_shim_is_found() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    let plain = Sandbox::find(options(root.path())).unwrap();
    let python = plain.interpreter().executable.clone();
    let shim = root.path().join("python3");
    std::fs::write(&shim, format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.display())).unwrap();
    make_executable(&shim);
    let found = Sandbox::find(Options { python: Some(shim), ..options(root.path()) }).unwrap();
    assert_eq!(found.interpreter().executable, python);
}

#[tokio::test]
async fn a_virtual_environment_keeps_its_packages() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    let plain = Sandbox::find(options(root.path())).unwrap();
    let environment = root.path().join("environment");
    let made = Command::new(&plain.interpreter().executable)
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment)
        .output()
        .unwrap();
    if !made.status.success() {
        println!("skipped: this Python makes no virtual environments");
        return;
    }
    let library = std::fs::read_dir(environment.join("lib")).unwrap().next().unwrap().unwrap();
    std::fs::write(library.path().join("site-packages/only_here.py"), "value = 9").unwrap();
    let python = Some(environment.join("bin/python3"));
    let sandbox = Sandbox::find(Options { python, ..options(root.path()) }).unwrap();
    let program = Program::with_answer("import only_here\nans = only_here.value", "ans");
    assert_eq!(sandbox.run(&program, &limits()).await.unwrap().outcome, finished("9"));
}

#[test]
fn what_is_missing_is_named() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    let with = |python: &str| {
        let python = Some(PathBuf::from(python));
        Sandbox::find(Options { python, ..options(root.path()) }).unwrap_err()
    };
    let error = with("/no/such/python3");
    assert!(error.is_missing_on_machine());
    assert!(error.to_string().starts_with("/no/such/python3: could not be started"), "{error}");
    assert!(with("/bin/true").to_string().contains("did not answer as a Python"));
    assert!(with("/bin/false").to_string().contains("is not a Python that runs"));
    let child = PathBuf::from("/bin/true");
    let error = Sandbox::find(Options { child, ..options(root.path()) }).unwrap_err();
    assert!(matches!(error, SandboxError::Child { .. }), "{error}");
    let work_root = root.path().join("nowhere");
    let error = Sandbox::find(Options { work_root, ..options(root.path()) }).unwrap_err();
    assert!(matches!(error, SandboxError::WorkFolder { .. }), "{error}");
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn an_interpreter_that_only_special_rights_reach_is_named() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    let python = Sandbox::find(options(root.path())).unwrap().interpreter().executable.clone();
    let home = root.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::symlink(&python, home.join("python3")).unwrap();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&home, Some(65533), None).is_err() {
        println!("skipped: only root reaches into homes of others");
        return;
    }
    let python = Some(home.join("python3"));
    let error = Sandbox::find(Options { python, ..options(root.path()) }).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("home/python3 cannot be reached without special rights"), "{said}");
}

/// Does something on a thread, and in the processes it starts, for which the given system calls
/// fail with `errno`: how a machine looks that does not give them.
fn without<T: Send>(calls: &[libc::c_long], errno: i32, action: impl FnOnce() -> T + Send) -> T {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
    let rules = calls.iter().map(|call| (*call, vec![])).collect();
    let (otherwise, matched) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
    let architecture = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new(rules, otherwise, matched, architecture).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            apply_filter(&filter).unwrap();
            action()
        });
        thread.join().unwrap()
    })
}

#[test]
fn without_a_required_layer_nothing_is_run() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    for (layer, call, errno) in [
        ("landlock", libc::SYS_landlock_create_ruleset, libc::ENOSYS),
        ("landlock", libc::SYS_landlock_restrict_self, libc::EOPNOTSUPP),
        ("seccomp", libc::SYS_seccomp, libc::EINVAL),
        ("resource limits", libc::SYS_prlimit64, libc::EPERM),
        ("privileges", libc::SYS_capset, libc::EPERM),
    ] {
        let found = without(&[call], errno, || Sandbox::find(options(root.path())));
        match found {
            Err(SandboxError::LayerMissing { layer: missing, .. }) => assert_eq!(missing, layer),
            other => panic!("{layer}: {other:?}"),
        }
    }
}

/// Only if it was asked for; what is missing and what programs can do is named, and limits still hold.
#[test]
fn a_degraded_sandbox_is_asked_for_and_says_what_it_lacks() {
    for (layer, call, errno) in [
        ("landlock", libc::SYS_landlock_create_ruleset, libc::ENOSYS),
        ("landlock", libc::SYS_landlock_restrict_self, libc::EOPNOTSUPP),
        ("seccomp", libc::SYS_seccomp, libc::EINVAL),
        ("resource limits", libc::SYS_prlimit64, libc::EPERM),
    ] {
        without(&[call], errno, || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir(root.path().join("work")).unwrap();
            let asked = Options { degraded: true, ..options(root.path()) };
            let sandbox = Sandbox::find(asked).unwrap();
            let missing: Vec<_> = sandbox.layers().iter().filter(|l| !l.is_active()).collect();
            assert_eq!(missing.iter().map(|l| l.name.as_str()).collect::<Vec<_>>(), [layer]);
            assert!(missing[0].required);
            // Files are Landlock's alone to close; sockets are closed by seccomp and by the namespace.
            let leaks = sandbox.leaks().unwrap_or_default();
            assert_eq!(leaks.contains("reading /etc/passwd"), layer == "landlock", "{leaks}");
            assert_eq!(leaks.contains("a socket"), layer == "seccomp", "{leaks}");
            let run = |source: &str, limits: &Limits| {
                let program = Program::with_answer(source, "ans");
                runtime.block_on(sandbox.run(&program, limits)).unwrap().outcome
            };
            assert_eq!(run("ans = 6 * 7", &limits()), finished("42"));
            let short = Limits { wall: Duration::from_millis(700), ..limits() };
            assert_eq!(run("while True: pass", &short), Outcome::WallLimit);
        });
    }
    // What cannot be left out is still refused.
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("work")).unwrap();
    let asked = Options { degraded: true, ..options(root.path()) };
    let error = without(&[libc::SYS_capset], libc::EPERM, || Sandbox::find(asked)).unwrap_err();
    assert!(matches!(error, SandboxError::LayerMissing { ref layer, .. } if layer == "privileges"));
}

#[test]
fn without_namespaces_the_other_layers_hold() {
    let missing = [libc::SYS_unshare, libc::SYS_mount];
    without(&missing, libc::EPERM, || {
        // Made here, so that the runtime's threads, and what they start, lack them too.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ground = Ground::new();
        let namespaces = ground.sandbox.layers().iter().filter(|layer| !layer.required);
        assert!(
            namespaces.clone().count() >= 6 && namespaces.clone().all(|layer| !layer.is_active())
        );
        runtime.block_on(async {
            for source in [
                "open('/etc/passwd')",
                "open('PRIVATE')",
                "open('PRIVATE', 'w')",
                "import os\nos.fork()",
                "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
                "import os, signal\nos.kill(-1, signal.SIGKILL)",
                "import socket\nsocket.socket(socket.AF_UNIX)",
                "import socket\nsocket.create_connection(('127.0.0.1', 80))",
                "import ctypes, os\nos.chmod('PRIVATE', 0)",
            ] {
                ground.denied(source).await;
            }
            assert_eq!(ground.answer("open('f', 'w').write('x')\nans = 2").await, "2");
            let short = Limits { wall: Duration::from_millis(700), ..limits() };
            let endless = Program::with_answer("import time\ntime.sleep(10 ** 6)", "ans");
            assert_eq!(ground.run_with(&endless, &short).await.outcome, Outcome::WallLimit);
        });
    });
}
