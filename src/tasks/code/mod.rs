//! Tasks whose answers are programs: what is right is what the data set's own solution gives.
//!
//! The rules are those of EvalPlus 0.3.1. A function is called on the inputs of the original data set
//! (base) and on EvalPlus's (plus), and must give what the reference gives, within the task's tolerance; each
//! call within the larger of a second and four times the reference's processor time.
//!
//! # Who sees what
//! Reference and program run in the sandbox, never in the same process: the program's process knows the
//! inputs and no expected output, and what the program returned is compared outside, on plain data
//! (`value`). So nothing that a program overrides, prints or looks for can make it right. A data set whose
//! tests are a Python function (`check(candidate)`) is judged in three runs: the test on the reference, which
//! says the inputs; the program on those inputs; the test on what the program returned.

mod compare;
mod forms;
mod grade;
mod runs;
mod shapes;
mod tidy;
mod value;

use std::fmt;

use sha2::{Digest, Sha256};

pub use compare::Oracle;
pub use forms::{HUMANEVAL, PLUS};
pub use grade::{Grade, Part, grade, judge};
pub use tidy::program;
pub use value::Value;

/// What is right for a task that asks for a function.
#[derive(Clone, PartialEq)]
pub struct Tests {
    /// The data set's solution, a whole program.
    pub reference: String,
    pub entry_point: String,
    /// What the question gives of the program: all up to the function's body, or nothing.
    pub prompt: String,
    pub how: How,
    digest: [u8; 32],
}

/// How a function is tested.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    /// Against the reference, on inputs: the arguments of a call each.
    Inputs {
        base: Vec<Vec<Value>>,
        plus: Vec<Vec<Value>>,
        /// The absolute tolerance of numbers; 0 where the task states none.
        tolerance: f64,
        oracle: Oracle,
    },
    /// By Python source, which defines `check(candidate)` or calls the function by its name.
    Test { source: String },
}

impl Tests {
    /// Tests of a function; they are known again by all that is given here.
    pub fn new(reference: String, entry_point: String, prompt: String, how: How) -> Tests {
        let text = format!("{reference}\0{entry_point}\0{prompt}\0{how:?}");
        let digest = Sha256::digest(text.as_bytes()).into();
        Tests { reference, entry_point, prompt, how, digest }
    }

    /// The part of the prompt before the function: imports and helpers that the question gives.
    pub(crate) fn preamble(&self) -> &str {
        let head = format!("def {}(", self.entry_point);
        let at = self.prompt.find(&format!("\n{head}")).map_or(0, |at| at + 1);
        &self.prompt[..at]
    }
}

impl fmt::Debug for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tests of `{}`", self.entry_point)
    }
}
