//! Data sets and what is right in them. Uses `answer` and `program`.
//!
//! A task is a row of one table (`list`): its name, where its file lies, and the function that makes an
//! item of a record. Files are read as their authors publish them: JSON lines, or one JSON array of
//! records, plain or gzipped. What cannot be read is told by number, and the rest is used.
//!
//! An `Item` holds what is right (`Gold`); the `Problem` that a method sees never does. `judge` compares
//! an answer with it, three-valued: `Undecided` is where the grader could not tell, and is never right.

mod choice;
pub mod code;
mod forms;
mod ifeval;
mod json;
mod judge;
mod list;
mod overlap;
mod read;
mod select;
mod words;

use std::sync::Arc;

use crate::answer::{Kind, Problem};

pub use ifeval::{Followed, Instruction, check, instructions};
pub use json::Json;
pub use judge::{JudgeError, Judged, judge};
pub use list::{Task, list, named};
pub use overlap::{QuestionDigest, Shared, overlap, repeated};
pub use read::{
    DATA_FOLDER, Damaged, Loaded, TaskError, data_folder, find, load, load_from, records,
};
pub use select::Selection;
pub use words::{f1, normalised};

/// A question and what is right.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The data set's own, or `NAME-LINE`.
    pub id: String,
    pub question: String,
    pub gold: Gold,
    /// Code: the function that must exist.
    pub entry_point: Option<String>,
    /// Code: checks that the question itself shows.
    pub public_checks: Vec<String>,
    /// What the data set says of the item beside its answer, such as `subject` and `level`.
    pub labels: Vec<(&'static str, String)>,
}

/// What is right.
#[derive(Clone, Debug, PartialEq)]
pub enum Gold {
    /// A value, in the data set's words; several where several were asked for, in their order.
    Values(Vec<String>),
    /// One of the options.
    Choice { letter: char, options: Vec<Choice> },
    /// Words, compared as HotpotQA does.
    Words(String),
    /// Whatever follows these instructions.
    Instructions(Vec<Instruction>),
    /// Whatever passes these tests.
    Tests(Arc<code::Tests>),
}

/// An option of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub letter: char,
    pub text: String,
}

impl Gold {
    /// What is right, in words for people.
    pub fn shown(&self) -> String {
        match self {
            Self::Values(values) => values.join("; "),
            Self::Choice { letter, options } => {
                match options.iter().find(|choice| choice.letter == *letter) {
                    Some(choice) => format!("{letter}) {}", choice.text),
                    None => letter.to_string(),
                }
            }
            Self::Words(words) => words.clone(),
            Self::Instructions(all) => {
                all.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join("; ")
            }
            Self::Tests(tests) => format!("{tests:?}"),
        }
    }
}

impl Item {
    /// What a method sees: everything but what is right.
    pub fn problem(&self) -> Problem {
        Problem {
            id: self.id.clone(),
            question: self.question.clone(),
            kind: self.kind(),
            entry_point: self.entry_point.clone(),
            public_checks: self.public_checks.clone(),
        }
    }

    /// What kind of answer is wanted.
    pub fn kind(&self) -> Kind {
        match self.gold {
            Gold::Values(_) | Gold::Choice { .. } | Gold::Words(_) => Kind::Math,
            Gold::Instructions(_) => Kind::Text,
            Gold::Tests(_) => Kind::Code,
        }
    }
}
