//! The command line: one of the two front doors.

use crate::program::sandbox;

/// Runs the command named on the command line and says how it ended (exit codes: 0 an answer or a
/// finished run, 1 a stated failure, 2 bad usage or input, 3 something missing on the machine).
pub fn main() -> std::process::ExitCode {
    // Before anything else: the sandbox's child is this binary, and must have one thread.
    if std::env::args_os().nth(1).is_some_and(|first| first == sandbox::CHILD_ARGUMENT) {
        return sandbox::child_main(std::env::args_os().skip(2));
    }
    std::process::ExitCode::from(2)
}
