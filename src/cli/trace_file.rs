//! The trace on disk: every event of a problem, one JSON object a line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use crate::llm::{Event, Sink};

use super::failure::Failure;

/// A sink that writes events to a file. Pieces of replies are left out: the whole reply follows.
pub struct TraceFile {
    path: PathBuf,
    begun: Instant,
    state: Mutex<State>,
}

struct State {
    file: BufWriter<File>,
    error: Option<std::io::Error>,
}

#[derive(serde::Serialize)]
struct Line<'a> {
    schema: u32,
    /// Seconds since the trace was opened.
    at: f64,
    #[serde(flatten)]
    event: &'a Event,
}

impl TraceFile {
    /// Makes the file; one that is there already is refused, so that no trace is lost.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::options().write(true).create_new(true).open(path).map_err(|e| {
            if e.kind() == std::io::ErrorKind::AlreadyExists {
                return exists(path);
            }
            Failure::usage(format!("cannot write the trace {}: {e}", path.display()))
                .hint("name a file in a folder that exists and may be written")
        })?;
        let state = Mutex::new(State { file: BufWriter::new(file), error: None });
        Ok(Self { path: path.to_owned(), begun: Instant::now(), state })
    }

    /// Says whether every event reached the file.
    pub fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let flushed = state.file.flush();
        match state.error.take().map_or(flushed, Err) {
            Ok(()) => Ok(()),
            Err(e) => {
                Err(Failure::stated(format!("the trace {} is not whole: {e}", self.path.display())))
            }
        }
    }
}

/// A trace is never written over.
pub fn exists(path: &Path) -> Failure {
    Failure::usage(format!("the trace {} exists already", path.display()))
        .hint("a trace is never written over: name another file, or remove this one")
}

impl Sink for TraceFile {
    fn event(&self, event: &Event) {
        if matches!(event, Event::Piece { .. }) {
            return;
        }
        let line = Line { schema: 1, at: self.begun.elapsed().as_secs_f64(), event };
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let written = serde_json::to_writer(&mut state.file, &line)
            .map_err(std::io::Error::from)
            .and_then(|()| state.file.write_all(b"\n"))
            // A killed run leaves every line that was finished.
            .and_then(|()| state.file.flush());
        if let Err(e) = written {
            state.error.get_or_insert(e);
        }
    }
}
