//! Where model-written Python runs: a killable child that sees the interpreter, its work folder
//! and nothing else.

use std::time::Duration;

use serde::Serialize;

/// What a run may use.
#[derive(Clone, Debug)]
pub struct Limits {
    pub wall: Duration,
    pub cpu: Duration,
    pub memory_bytes: u64,
    /// Bytes of standard output and of standard error that are kept.
    pub output_bytes: usize,
    pub file_bytes: u64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The program ran to its end. `answer`: the text of the variable asked for, if it was set.
    Finished {
        answer: Option<String>,
    },
    /// The program raised.
    Raised {
        kind: String,
        message: String,
        line: Option<usize>,
    },
    SyntaxError {
        message: String,
        line: Option<usize>,
    },
    /// It left early (`sys.exit`, `os._exit`) without a result.
    Exited {
        code: i32,
    },
    WallLimit,
    CpuLimit,
    MemoryLimit,
    /// Something that the sandbox denies was tried and ended the program.
    Denied {
        what: String,
    },
    /// Ended by a signal for another reason.
    Killed {
        signal: i32,
    },
}

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    pub outcome: Outcome,
    pub stdout: String,
    pub stderr: String,
    /// Output was longer than the limit and cut.
    pub truncated: bool,
    pub wall_seconds: f64,
}

/// The sandbox of this machine: the interpreter found, the layers that the kernel offers.
#[derive(Debug)]
pub struct Sandbox {
    _private: (),
}
