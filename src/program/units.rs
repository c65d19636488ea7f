//! Logic units of a Python program (RaLU, stage 1).

use serde::Serialize;

/// One logic unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// From 1, in the order in which units are judged.
    pub id: usize,
    /// What the unit is, in one word or two: `entry`, `branch`, `loop begin`, `loop end`, `block`, …
    pub label: String,
    /// The unit as a judge reads it.
    pub text: String,
    /// Source lines of its statements, from 1, rising.
    pub lines: Vec<usize>,
}

/// A program read into units, with the places that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    pub units: Vec<Unit>,
    pub syntax_errors: Vec<SyntaxError>,
}

/// A place that the parser could not make sense of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SyntaxError {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub text: String,
}
