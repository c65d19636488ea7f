//! Standard output and standard error. A reader that went away ends a command quietly; a disk that
//! is full ends it with an error; nothing panics.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

use super::failure::Failure;

/// Writes a line to standard output, or leaves the function with the failure.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::output::line(format_args!($($words)*))? };
}
pub(super) use say;

/// Writes a line to standard error; that nobody can read it changes nothing.
macro_rules! note {
    ($($words:tt)*) => { $crate::cli::output::note_line(format_args!($($words)*)) };
}
pub(super) use note;

/// A line on standard output.
pub fn line(words: Arguments<'_>) -> Result<(), Failure> {
    text(&format!("{words}\n"))
}

/// Text on standard output, at once.
pub fn text(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| failed(&e))
}

/// What a failed write means for the command.
pub fn failed(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(),
        _ => Failure::stated(format!("cannot write to standard output: {error}")),
    }
}

/// A line on standard error.
pub fn note_line(words: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(format!("{words}\n").as_bytes());
}
