//! An error as the user reads it: what, why, what to do, and the exit code.

use std::fmt;

/// Why a command ended without doing its job.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A stated failure of the job itself: exit code 1.
    pub fn stated(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into(), hint: None }
    }

    /// Nobody reads on: the command ends without a word, exit code 0.
    pub fn quiet() -> Self {
        Self { code: 0, message: String::new(), hint: None }
    }

    /// Whether there is nothing to say.
    pub fn is_quiet(&self) -> bool {
        self.code == 0
    }

    /// Bad usage or bad input: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into(), hint: None }
    }

    /// Something that this machine lacks: exit code 3.
    pub fn missing(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The process's exit code.
    pub fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// An error and its causes in one line, a cause that only repeats its parent's words left out.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}
