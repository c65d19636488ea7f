//! The command line: one of the two front doors.

/// Runs the command named on the command line and says how it ended (exit codes: 0 an answer or a
/// finished run, 1 a stated failure, 2 bad usage or input, 3 something missing on the machine).
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::from(2)
}
