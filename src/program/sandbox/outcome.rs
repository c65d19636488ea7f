//! What a run is asked for and how it ended: the types that callers see.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a run may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Time by the clock on the wall; generous, since a busy machine must not fail right programs.
    pub wall: Duration,
    /// Processor time of all threads together, rounded up to whole seconds.
    pub cpu: Duration,
    /// Address space of the interpreter; at least 64 MiB.
    pub memory_bytes: u64,
    /// Bytes of standard output and of standard error that are kept.
    pub output_bytes: usize,
    /// Bytes of one file; the whole work folder is held to little more where it can be.
    pub file_bytes: u64,
}

impl Limits {
    /// The least memory in which an interpreter starts.
    pub const LEAST_MEMORY_BYTES: u64 = 64 << 20;
}

impl Default for Limits {
    /// 30 s of processor time, 120 s of wall time, 1 GiB of memory, 64 KiB of output, 16 MiB a file.
    fn default() -> Limits {
        Limits {
            wall: Duration::from_secs(120),
            cpu: Duration::from_secs(30),
            memory_bytes: 1 << 30,
            output_bytes: 64 << 10,
            file_bytes: 16 << 20,
        }
    }
}

/// A program to run: Python source that somebody untrusted wrote, and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    pub source: String,
    /// The variable whose text is the answer.
    pub result_variable: Option<String>,
    /// Text on standard input; empty if not given.
    pub stdin: Option<String>,
    /// Trusted source that runs first, in the same namespace.
    pub setup: Option<String>,
    /// Trusted source that runs last, in the same namespace: assertions about what the program
    /// defined.
    pub checks: Option<String>,
}

impl Program {
    /// A program whose answer is the text of `variable`.
    pub fn with_answer(source: impl Into<String>, variable: impl Into<String>) -> Program {
        Program {
            source: source.into(),
            result_variable: Some(variable.into()),
            ..Program::default()
        }
    }

    /// A program that is judged by assertions, run after it in its namespace.
    pub fn with_checks(source: impl Into<String>, checks: impl Into<String>) -> Program {
        Program { source: source.into(), checks: Some(checks.into()), ..Program::default() }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The program ran to its end and passed its checks, if it has any. `answer`: the text of the
    /// variable asked for, if it was set.
    Finished { answer: Option<String> },
    /// The program ran to its end, but the variable's text could not be had: its `str` raised, or
    /// gave more than 256 KiB.
    AnswerUnreadable { why: String },
    /// The program raised. `line`: from 1, in the program.
    Raised { kind: String, message: String, line: Option<usize> },
    /// A check failed: an assertion, or another exception of the checks' own lines. (What the
    /// program's functions raise while checks call them is `Raised`.) `line`: in the checks.
    CheckFailed { kind: String, message: String, line: Option<usize> },
    /// Python cannot read the source.
    SyntaxError { message: String, line: Option<usize> },
    /// It left early (`sys.exit`, `os._exit`) without a result.
    Exited { code: i32 },
    /// Ended by the wall clock.
    WallLimit,
    /// Ended by the limit on processor time.
    CpuLimit,
    /// Ended by the memory limit.
    MemoryLimit,
    /// Something that the sandbox denies was tried and ended the program.
    Denied { what: String },
    /// Ended by a signal for another reason.
    Killed { signal: i32 },
}

impl std::fmt::Display for Outcome {
    /// In words that follow "the program was run, but failed:".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finished { .. } => f.write_str("finished"),
            Self::AnswerUnreadable { why } => write!(f, "the value in `ans` cannot be read: {why}"),
            Self::Raised { kind, message, line } | Self::CheckFailed { kind, message, line } => {
                write!(f, "{kind}: {message}{}", at_line(*line))
            }
            Self::SyntaxError { message, line } => {
                write!(f, "it is not valid Python: {message}{}", at_line(*line))
            }
            Self::Exited { code } => write!(f, "it left early, with code {code}"),
            Self::WallLimit | Self::CpuLimit => f.write_str("it ran for too long"),
            Self::MemoryLimit => f.write_str("it needed too much memory"),
            Self::Denied { what } => write!(f, "it tried what is not allowed: {what}"),
            Self::Killed { signal } => write!(f, "it was ended by signal {signal}"),
        }
    }
}

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    pub outcome: Outcome,
    /// Standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// Standard error, invalid UTF-8 replaced; the traceback of an exception is here.
    pub stderr: String,
    /// Output was longer than the limit and cut.
    pub truncated: bool,
    /// The Python type of the answer's value (`int`, `float`, `Fraction`, `str`, `tuple`, `NoneType`, …).
    pub answer_type: Option<String>,
    /// From when the interpreter was given the program to its end.
    pub wall_seconds: f64,
    /// Processor time of the interpreter, user and system.
    pub cpu_seconds: f64,
}

/// A layer of the sandbox and whether this machine gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub name: String,
    /// Without it nothing is run, unless that was asked for.
    pub required: bool,
    pub state: LayerState,
}

/// Whether a layer is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum LayerState {
    Active { detail: String },
    Missing { why: String },
}

impl Layer {
    /// Whether the layer is in force.
    pub fn is_active(&self) -> bool {
        matches!(self.state, LayerState::Active { .. })
    }
}

/// Why a program could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the sandbox for programs works on Linux (x86-64 and AArch64) only, not on {platform}")]
    Platform { platform: String },
    #[error(
        "no Python 3.9 or newer was found that can run in the sandbox ({tried}); install one (for \
         example `apt install python3`) or name one"
    )]
    NoInterpreter { tried: String },
    #[error("{path}: {why}")]
    Interpreter { path: String, why: String },
    #[error(
        "the sandbox's layer `{layer}` is missing ({why}); programs are not run without it: use a \
         kernel of 5.13 or newer with Landlock and seccomp enabled, or run them unprotected on a machine \
         that has nothing to lose with --sandbox-degraded"
    )]
    LayerMissing { layer: String, why: String },
    #[error(
        "the sandbox does not hold on this machine ({what} was possible inside); nothing is run"
    )]
    Leaks { what: String },
    #[error("the sandbox's child process `{path}` {why}")]
    Child { path: String, why: String },
    #[error("the interpreter did not start in the sandbox ({why})")]
    Start { why: String },
    #[error("limit out of range: {what}")]
    Limits { what: String },
    #[error("the setup given with the program failed: {what}")]
    Setup { what: String },
    #[error("the checks given with the program are not Python: {message}{}", at_line(*line))]
    Checks { message: String, line: Option<usize> },
    #[error(
        "the sandbox's work folder {path}: {source}; TMPDIR must name a folder that exists and may be \
         written to"
    )]
    WorkFolder { path: String, source: std::io::Error },
    #[error("the sandbox could not {what}: {source}")]
    System { what: &'static str, source: std::io::Error },
}

impl SandboxError {
    /// Whether something is missing on the machine, rather than wrong with the request.
    pub fn is_missing_on_machine(&self) -> bool {
        use SandboxError::*;
        matches!(
            self,
            Platform { .. }
                | NoInterpreter { .. }
                | Interpreter { .. }
                | LayerMissing { .. }
                | Leaks { .. }
                | Child { .. }
                | WorkFolder { .. }
        )
    }
}

fn at_line(line: Option<usize>) -> String {
    line.map(|line| format!(" (line {line})")).unwrap_or_default()
}
