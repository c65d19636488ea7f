//! The events of each item, one compressed file each.

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::llm::{Event, Sink};

use super::record::Key;

/// Where an item's trace lies in a run's folder. The name is made of the key: readable, and safe as the
/// name of a file whatever the item is called.
pub fn trace_path(folder: &Path, key: &Key) -> PathBuf {
    let safe = |text: &str| -> String {
        let kept = |c: char| if c.is_ascii_alphanumeric() || "-_=.".contains(c) { c } else { '_' };
        text.chars().take(60).map(kept).collect()
    };
    // What was replaced or cut is told apart by a digest of the names.
    let digest = crate::store::sha256_of_text(&format!("{}\n{}", key.item, key.method));
    let name = format!(
        "{}.{}.{}.{}.{}.jsonl.gz",
        safe(&key.item),
        safe(&key.method),
        key.seed,
        key.sample,
        &digest[..12]
    );
    folder.join("traces").join(name)
}

/// Collects the events of an item in memory, compressed; they reach the disk when it is finished, so a
/// trace is whole or not there.
pub(super) struct Tracer {
    begun: Instant,
    state: Mutex<(GzEncoder<Vec<u8>>, Option<io::Error>)>,
}

#[derive(serde::Serialize)]
struct Line<'a> {
    schema: u32,
    /// Seconds since the item was begun.
    at: f64,
    #[serde(flatten)]
    event: &'a Event,
}

impl Tracer {
    pub(super) fn new() -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::default());
        Self { begun: Instant::now(), state: Mutex::new((encoder, None)) }
    }

    /// Writes the trace; one of an earlier, unfinished try is replaced.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let empty = GzEncoder::new(Vec::new(), Compression::default());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (encoder, error) = std::mem::replace(&mut *state, (empty, None));
        drop(state);
        if let Some(error) = error {
            return Err(error);
        }
        let bytes = encoder.finish()?;
        let part = path.with_extension("part");
        std::fs::write(&part, bytes)?;
        std::fs::rename(&part, path)
    }
}

impl Sink for Tracer {
    /// Pieces of replies are left out: the whole reply follows.
    fn event(&self, event: &Event) {
        if matches!(event, Event::Piece { .. }) {
            return;
        }
        let line = Line { schema: super::SCHEMA, at: self.begun.elapsed().as_secs_f64(), event };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (encoder, error) = &mut *state;
        let written = serde_json::to_writer(&mut *encoder, &line)
            .map_err(io::Error::from)
            .and_then(|()| encoder.write_all(b"\n"));
        if let Err(failed) = written {
            error.get_or_insert(failed);
        }
    }
}

/// The events of a trace, as JSON, one a line.
pub fn read_trace(path: &Path) -> io::Result<Vec<serde_json::Value>> {
    let file = std::fs::File::open(path)?;
    BufReader::new(GzDecoder::new(file))
        .lines()
        .map(|line| serde_json::from_str(&line?).map_err(io::Error::from))
        .collect()
}
