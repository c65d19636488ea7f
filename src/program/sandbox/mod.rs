//! Where model-written Python runs: a killable child that sees the interpreter, its work folder
//! and nothing else. Uses no other room.
//!
//! # How it holds
//! The child is this binary, executed again (`child_main`), so the parent, which has threads,
//! never runs code between a fork and an execution. The child enters namespaces where it may
//! (user, network, ipc, uts, pid, mount: the work folder is then a bounded file system), gives up
//! all capabilities, lets Landlock close the file system but for the interpreter (read) and the
//! work folder (write), sets resource limits, applies seccomp filters (an allow-list: no
//! processes, sockets, signals to others, changes of metadata, second programs), and becomes
//! Python. Landlock and seccomp are required: without them nothing is run. Limits: wall time by
//! the supervisor, processor time, memory and file size by the kernel, threads by the supervisor;
//! output is drained and cut. When the parent goes away, however it does, the run ends.
//!
//! An interpreter can be started before its program is known, since nothing of the above depends on the
//! program: some stand ready, confined already, and wait for theirs. Each is used once. (Forking one warm
//! interpreter for every run would be cheaper still, but the fork would have to be taken back from the
//! program by code that runs inside the interpreter.)
//!
//! # What is believed
//! The outcome never comes from what a program prints. The harness (`harness.py`) writes it to a
//! socket of its own, behind a secret made for this run; anything else written there makes the run
//! `Denied`. While the program runs the secret lies on the interpreter's value stack only; looking
//! there from Python (`gc`, tracing, other threads' frames) is refused by an audit hook, and the
//! kernel refuses to close, copy or replace the socket's descriptor (and what was written to a
//! socket cannot be read back).
//!
//! What remains: harness and program share one process. A program that reads that process's
//! memory (`ctypes`, hand-made bytecode, a faulty extension module) can find the secret and forge
//! its own result: an answer, which setting the variable gives it for free, or checks that
//! "passed". Nor can checks in the same namespace see through an object whose `==` always says
//! yes. Graders of programs that may be that hostile must compare plain values outside, from the
//! answer's text. Neither gives a program anything on the machine.
//!
//! Where namespaces are missing (`layers` names them) Landlock and seccomp still hold: files,
//! processes, sockets and signals stay closed. The existence and the metadata of files outside
//! can be read (`stat`), and the sum of files in the work folder is then bounded by time only.

mod interpreter;
mod outcome;
mod protocol;
mod work_folder;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod child;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod confine;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod parent;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod syscalls;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use child::child_main;
pub use interpreter::Interpreter;
pub use outcome::{Layer, LayerState, Limits, Outcome, Program, Run, SandboxError};
pub use protocol::CHILD_ARGUMENT;

/// Where the sandbox's parts are; the default suits the `unsay` binary.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Python to use; if not given, the first usable one on the search path.
    pub python: Option<PathBuf>,
    /// The program that calls `child_main` when its first argument is `CHILD_ARGUMENT`: this one.
    pub child: PathBuf,
    /// Where the work folders are made: the system's folder for temporary files.
    pub work_root: PathBuf,
    /// Runs at a time; more wait their turn. The number of processors.
    pub concurrent: usize,
    /// Interpreters that are kept standing, each in a sandbox of its own, for the programs to come: one
    /// takes a program at once, where a start takes tens of milliseconds. The first is started after the
    /// first run. As many as run at a time; 0: none.
    pub standing: usize,
    /// Whether programs are run although the resource limits, Landlock or seccomp are missing here. What
    /// is missing then stands in `Sandbox::layers`, and what programs can do in `Sandbox::leaks`.
    pub degraded: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            python: None,
            child: PathBuf::from("/proc/self/exe"),
            work_root: std::env::temp_dir(),
            concurrent: std::thread::available_parallelism().map_or(2, usize::from),
            standing: std::thread::available_parallelism().map_or(2, usize::from),
            degraded: false,
        }
    }
}

/// The sandbox of this machine: the interpreter found, the layers that the kernel offers.
/// Clones are cheap and share the bound on concurrent runs.
#[derive(Clone, Debug)]
pub struct Sandbox {
    place: Arc<Place>,
    turns: Arc<Semaphore>,
    standing: Arc<Stand>,
    layers: Arc<[Layer]>,
    leaks: Option<Arc<str>>,
}

/// The interpreters that wait for programs. Every run has one of its own, used once, so nothing of a
/// program is left for the next.
#[derive(Debug)]
struct Stand {
    most: usize,
    waiting: Mutex<VecDeque<Standing>>,
}

impl Stand {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Standing>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was started with these limits.
    fn take(&self, limits: &Limits) -> Option<Standing> {
        let mut waiting = self.lock();
        let at = waiting.iter().position(|one| one.limits() == limits)?;
        waiting.remove(at)
    }

    /// Starts others until as many wait as may, all with these limits. One that does not start is no
    /// failure of anybody's: the next run starts its own.
    fn fill(&self, place: &Place, limits: &Limits) {
        let waits = |waiting: &VecDeque<Standing>| {
            waiting.iter().filter(|one| one.limits() == limits).count()
        };
        while waits(&self.lock()) < self.most {
            let Ok(one) = Standing::start(place, limits) else { return };
            let mut waiting = self.lock();
            // Others may have come meanwhile; those with other limits go first.
            let extra = waiting.iter().position(|one| one.limits() != limits);
            let gone = match extra {
                Some(at) if waiting.len() >= self.most => waiting.remove(at),
                _ => None,
            };
            waiting.push_back(one);
            let too_many = (waiting.len() > self.most).then(|| waiting.pop_front());
            drop(waiting);
            drop((gone, too_many));
        }
    }
}

/// What every run needs to know.
#[derive(Debug)]
struct Place {
    interpreter: Interpreter,
    child: PathBuf,
    work_root: PathBuf,
    degraded: bool,
}

/// A program that looks for leaks, and says what it could do.
const PROBE: &str = r#"
import os
possible = []
def attempt(what, action):
    try:
        action()
    except OSError:
        return
    possible.append(what)
def list_processes():
    os.listdir("/proc")
def make_socket():
    import socket
    socket.socket().close()
attempt("reading /etc/passwd", lambda: open("/etc/passwd").read())
attempt("listing /proc", list_processes)
attempt("a socket", make_socket)
attempt("writing outside the work folder", lambda: open("../unsay-probe", "x"))
open("inside", "w").write("x")
leaks = ", ".join(possible) or "none"
"#;

impl Sandbox {
    /// Finds an interpreter and tries the sandbox out with it. Blocks for the time of two starts
    /// of Python. Errors say what is missing on the machine.
    pub fn find(options: Options) -> Result<Sandbox, SandboxError> {
        let candidates = match &options.python {
            Some(python) => vec![python.clone()],
            None => interpreter::candidates(std::env::var_os("PATH").as_deref()),
        };
        let mut tried = Vec::new();
        for candidate in &candidates {
            match Sandbox::with(candidate, &options) {
                Ok(sandbox) => return Ok(sandbox),
                Err(error) if options.python.is_some() || !is_the_candidates(&error) => {
                    return Err(error);
                }
                Err(SandboxError::Interpreter { path, why }) => {
                    tried.push(format!("{path}: {why}"))
                }
                Err(error) => tried.push(format!("{}: {error}", candidate.display())),
            }
        }
        let tried = if tried.is_empty() { "none on the path".to_owned() } else { tried.join("; ") };
        Err(SandboxError::NoInterpreter { tried })
    }

    fn with(candidate: &Path, options: &Options) -> Result<Sandbox, SandboxError> {
        let place = Place {
            interpreter: Interpreter::ask(candidate)?,
            child: options.child.clone(),
            work_root: options.work_root.clone(),
            degraded: options.degraded,
        };
        let program = Program::with_answer(PROBE, "leaks");
        let tried = Standing::start(&place, &Limits::default())?;
        let (run, layers) = tried.run(&program, None)?;
        match run.outcome {
            Outcome::Finished { answer: Some(leaks) } if leaks == "none" || options.degraded => {
                Ok(Sandbox {
                    place: Arc::new(place),
                    turns: Arc::new(Semaphore::new(options.concurrent.max(1))),
                    standing: Arc::new(Stand { most: options.standing, waiting: Mutex::default() }),
                    layers: layers.into(),
                    leaks: (leaks != "none").then(|| leaks.into()),
                })
            }
            Outcome::Finished { answer } => {
                Err(SandboxError::Leaks { what: answer.unwrap_or_default() })
            }
            outcome => Err(SandboxError::Start { why: format!("{outcome:?} {}", run.stderr) }),
        }
    }

    /// The interpreter that runs the programs.
    pub fn interpreter(&self) -> &Interpreter {
        &self.place.interpreter
    }

    /// The layers, in force and missing, as seen when the sandbox was tried out.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// What a program could do here that it should not, of what was tried; only ever something where
    /// `Options::degraded` allows it.
    pub fn leaks(&self) -> Option<&str> {
        self.leaks.as_deref()
    }

    /// Runs a program to its end, whatever that is. Must be called within a tokio runtime;
    /// dropping the future ends the run and everything of it.
    pub async fn run(&self, program: &Program, limits: &Limits) -> Result<Run, SandboxError> {
        if limits.memory_bytes < Limits::LEAST_MEMORY_BYTES {
            let what = format!(
                "memory of {} bytes; an interpreter needs at least {}",
                limits.memory_bytes,
                Limits::LEAST_MEMORY_BYTES
            );
            return Err(SandboxError::Limits { what });
        }
        if limits.wall.is_zero() || limits.cpu.is_zero() {
            return Err(SandboxError::Limits { what: "no time at all".to_owned() });
        }
        let closed = |_| SandboxError::System {
            what: "wait for its turn",
            source: std::io::Error::other("the sandbox was closed"),
        };
        let turn = self.turns.clone().acquire_owned().await.map_err(closed)?;
        // Dropping `_waiting` with this future tells the thread that nobody waits any more.
        let (abandoned, _waiting) = std::io::pipe()
            .map_err(|source| SandboxError::System { what: "make a pipe", source })?;
        let (program, own) = (program.clone(), limits.clone());
        let (place, standing) = (self.place.clone(), self.standing.clone());
        let thread = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            run_on_one(&place, &standing, &program, &own, abandoned)
        });
        match thread.await {
            Ok(ended) => {
                let (place, standing, limits) =
                    (self.place.clone(), self.standing.clone(), limits.clone());
                // Nobody waits for these.
                tokio::task::spawn_blocking(move || standing.fill(&place, &limits));
                ended.map(|(run, _)| run)
            }
            Err(error) => Err(SandboxError::System {
                what: "finish the run",
                source: std::io::Error::other(error),
            }),
        }
    }
}

/// Runs a program on an interpreter that waits for one, or else on a new one. One that was gone before it
/// took the program is no failure of the program's.
fn run_on_one(
    place: &Place,
    standing: &Stand,
    program: &Program,
    limits: &Limits,
    abandoned: std::io::PipeReader,
) -> Result<(Run, Vec<Layer>), SandboxError> {
    if let Some(one) = standing.take(limits) {
        let again = abandoned.try_clone().ok();
        match one.run(program, Some(abandoned)) {
            Err(SandboxError::Start { .. } | SandboxError::Child { .. }) => {
                return Standing::start(place, limits)?.run(program, again);
            }
            ended => return ended,
        }
    }
    Standing::start(place, limits)?.run(program, Some(abandoned))
}

/// Whether another interpreter may do where this one failed.
fn is_the_candidates(error: &SandboxError) -> bool {
    use SandboxError::*;
    matches!(error, Interpreter { .. } | Start { .. })
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use parent::Standing;

/// There is nothing here that could hold a program, so none of these can be.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[derive(Debug)]
enum Standing {}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
impl Standing {
    fn start(_: &Place, _: &Limits) -> Result<Standing, SandboxError> {
        let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        Err(SandboxError::Platform { platform })
    }

    fn limits(&self) -> &Limits {
        match *self {}
    }

    fn run(
        self,
        _: &Program,
        _: Option<std::io::PipeReader>,
    ) -> Result<(Run, Vec<Layer>), SandboxError> {
        match self {}
    }
}

/// Refuses: the sandbox has no child here.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub fn child_main(_: impl Iterator<Item = std::ffi::OsString>) -> std::process::ExitCode {
    std::process::ExitCode::from(3)
}
