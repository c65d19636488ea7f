//! What a program is worth: what it gives against what the reference gives.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tokio::sync::OnceCell;

use super::super::judge::{JudgeError, Judged};
use super::runs::{self, Called, Calls, Ran, Recorded};
use super::{How, Oracle, Tests, Value, tidy};
use crate::answer::Verdict;
use crate::program::sandbox::{Limits, Outcome, Program, Sandbox, SandboxError};

/// Processor time of a call of the reference, in seconds.
const REFERENCE_SECONDS: f64 = 50.0;
/// That of a program's call: so many times the reference's, and this at least.
const FACTOR: f64 = 4.0;
const LEAST_SECONDS: f64 = 1.0;
/// Where the reference takes longer than this for all its calls together, a program may need long.
const LONG_SECONDS: f64 = 10.0;

/// What is said of an output that cannot be carried. Where the reference's could be, it is wrong.
const TOO_LARGE: &str = "an output too large";

/// How a program did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grade {
    /// On the original data set's tests.
    pub base: Part,
    /// On the tests that were added; none where there are none.
    pub plus: Option<Part>,
    /// Why nothing can be said.
    pub undecided: Option<String>,
}

/// How a program did on some of the tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    pub passed: usize,
    pub total: usize,
    /// The first thing that went wrong.
    pub fault: Option<Fault>,
}

/// What went wrong, and at which input, from 1; at none where the program did not come that far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub what: String,
    pub input: Option<usize>,
}

impl Part {
    /// Whether all went right.
    pub fn passes(&self) -> bool {
        self.fault.is_none() && self.passed == self.total
    }

    fn failed(total: usize, passed: usize, what: impl Into<String>, input: Option<usize>) -> Part {
        Part { passed, total, fault: Some(Fault { what: what.into(), input }) }
    }
}

impl Grade {
    /// Right only where everything is.
    pub fn verdict(&self) -> Verdict {
        match self.undecided {
            Some(_) => Verdict::Undecided,
            None if self.base.passes() && self.plus.as_ref().is_none_or(Part::passes) => {
                Verdict::Right
            }
            None => Verdict::Wrong,
        }
    }

    /// In words: how many went right, and the first thing that did not.
    pub fn rule(&self) -> String {
        if let Some(why) = &self.undecided {
            return why.clone();
        }
        let count = |name: &str, part: &Part| format!("{name} {} of {}", part.passed, part.total);
        let mut rule = count("base", &self.base);
        if let Some(plus) = &self.plus {
            rule = format!("{rule}, {}", count("plus", plus));
        }
        let named = [("base", Some(&self.base)), ("plus", self.plus.as_ref())];
        let faults =
            named.iter().find_map(|(name, part)| Some((name, part.as_ref()?.fault.as_ref()?)));
        match faults {
            Some((name, Fault { what, input: Some(at) })) => {
                format!("{what} at {name} input {at}; {rule}")
            }
            Some((_, Fault { what, input: None })) => format!("{what}; {rule}"),
            None => rule,
        }
    }
}

/// Judges an answer that holds a program.
pub async fn judge(tests: &Tests, answer: &str, sandbox: &Sandbox) -> Result<Judged, JudgeError> {
    match tidy::program(answer, &tests.prompt, &tests.entry_point) {
        Some(program) => {
            let grade = grade(tests, &program, sandbox).await?;
            Ok(Judged::new(grade.verdict(), grade.rule()))
        }
        None => Ok(Judged::new(Verdict::Wrong, format!("no function `{}`", tests.entry_point))),
    }
}

/// How a program does. It is run as it stands: `program` makes one of an answer.
pub async fn grade(tests: &Tests, program: &str, sandbox: &Sandbox) -> Result<Grade, JudgeError> {
    let known = match &*known(tests, sandbox).await? {
        Ok(known) => known.clone(),
        Err(why) => {
            let why = format!("the reference gave nothing to compare with: {why}");
            return Ok(Grade { undecided: Some(why), ..Grade::default() });
        }
    };
    let run = Run { tests, program, sandbox };
    let grade = run.graded(&known).await?;
    let parts = [Some(&grade.base), grade.plus.as_ref()];
    let faults = parts.into_iter().flatten().filter_map(|part| part.fault.as_ref());
    let lacking = faults.into_iter().any(|fault| fault.what == "exception ModuleNotFoundError");
    let lacking = if lacking { lacks(program, sandbox).await? } else { None };
    let undecided = lacking.map(|module| {
        format!("it imports {module}, which the sandbox's Python lacks; `unsay setup` has it")
    });
    Ok(Grade { undecided: undecided.or(grade.undecided), ..grade })
}

/// The module of those that `unsay setup` installs which a program imports and the sandbox's Python lacks.
async fn lacks(program: &str, sandbox: &Sandbox) -> Result<Option<&'static str>, SandboxError> {
    for module in ["numpy", "z3", "constraint"] {
        let imports = |line: &str| {
            let mut words = line.split([' ', '.', ',', ';']).filter(|word| !word.is_empty());
            matches!(words.next(), Some("import" | "from")) && words.any(|word| word == module)
        };
        if !program.lines().map(str::trim).any(imports) {
            continue;
        }
        let probe = Program::with_answer(format!("import {module}\nthere = 1\n"), "there");
        let run = sandbox.run(&probe, &Limits::default()).await?;
        if matches!(run.outcome, Outcome::Raised { kind, .. } if kind == "ModuleNotFoundError") {
            return Ok(Some(module));
        }
    }
    Ok(None)
}

/// What the reference says.
enum Known {
    Inputs { base: Answers, plus: Answers },
    Test { source: String, recorded: Vec<Recorded> },
}

/// What the reference gives for some inputs.
struct Answers {
    inputs: Vec<Vec<Value>>,
    wires: Vec<String>,
    outputs: Vec<Value>,
    /// Processor time that the reference's calls took.
    seconds: Vec<f64>,
}

/// Processor time that a program's calls may take, and whether all together may need long.
fn allowed(reference: &[f64]) -> (Vec<f64>, bool) {
    let seconds = reference.iter().map(|spent| (FACTOR * spent).max(LEAST_SECONDS)).collect();
    (seconds, reference.iter().sum::<f64>() > LONG_SECONDS)
}

/// What is known of each reference in each interpreter, or why nothing is: found once.
type Found = Result<Arc<Known>, String>;
type Memory = HashMap<([u8; 32], PathBuf), Arc<OnceCell<Arc<Found>>>>;
static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(Mutex::default);

async fn known(tests: &Tests, sandbox: &Sandbox) -> Result<Arc<Found>, JudgeError> {
    let key = (tests.digest, sandbox.interpreter().executable.clone());
    let cell = {
        let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        memory.entry(key).or_default().clone()
    };
    let found = cell.get_or_try_init(|| async { ask(tests, sandbox).await.map(Arc::new) }).await?;
    Ok(found.clone())
}

/// Runs the reference.
async fn ask(tests: &Tests, sandbox: &Sandbox) -> Result<Found, JudgeError> {
    let (base, plus, members, exact) = match &tests.how {
        How::Inputs { base, plus, oracle, tolerance } => {
            (base, plus, *oracle == Oracle::Members, oracle.is_exact(*tolerance))
        }
        How::Test { source } => {
            let asked = runs::record(sandbox, &tests.reference, &tests.entry_point, source);
            return match asked.await? {
                Ok(recorded) => Ok(Ok(Arc::new(Known::Test { source: source.clone(), recorded }))),
                Err(
                    Outcome::CheckFailed { kind, message, .. }
                    | Outcome::Raised { kind, message, .. },
                ) if kind == "ModuleNotFoundError" => Err(JudgeError::Module { why: message }),
                Err(outcome) => Ok(Err(outcome.to_string())),
            };
        }
    };
    let answers = async |inputs: &[Vec<Value>]| -> Result<Result<Answers, String>, SandboxError> {
        let wires: Vec<String> = inputs.iter().map(|input| runs::wire(input)).collect();
        let seconds = vec![REFERENCE_SECONDS; wires.len()];
        let mut calls = Calls {
            program: &tests.reference,
            preamble: "",
            entry_point: &tests.entry_point,
            inputs: &wires,
            seconds: &seconds,
            long: false,
            members,
            exact,
        };
        let mut ran = calls.run(sandbox).await?;
        if matches!(ran, Ran::Ended(Outcome::CpuLimit)) {
            calls.long = true;
            ran = calls.run(sandbox).await?;
        }
        let called = match ran {
            Ran::Called(called) => called,
            Ran::NoFunction => return Ok(Err("it is not there".to_owned())),
            Ran::Ended(outcome) => return Ok(Err(outcome.to_string())),
        };
        let (mut outputs, mut seconds) = (Vec::new(), Vec::new());
        for (at, call) in called.into_iter().enumerate() {
            match call {
                Called::Returned { value, seconds: spent } => {
                    outputs.push(value);
                    seconds.push(spent);
                }
                other => return Ok(Err(format!("{} at input {}", fault(&other), at + 1))),
            }
        }
        Ok(Ok(Answers { inputs: inputs.to_vec(), wires, outputs, seconds }))
    };
    let (base, plus) = tokio::try_join!(answers(base), answers(plus))?;
    Ok(match (base, plus) {
        (Ok(base), Ok(plus)) => Ok(Arc::new(Known::Inputs { base, plus })),
        (Err(why), _) => Err(format!("{why} (base)")),
        (_, Err(why)) => Err(format!("{why} (plus)")),
    })
}

struct Run<'a> {
    tests: &'a Tests,
    program: &'a str,
    sandbox: &'a Sandbox,
}

impl Run<'_> {
    async fn graded(&self, known: &Known) -> Result<Grade, SandboxError> {
        match known {
            Known::Inputs { base, plus } => {
                let (base, plus) = tokio::try_join!(self.compared(base), self.compared(plus))?;
                Ok(Grade { base, plus: Some(plus), undecided: None })
            }
            Known::Test { source, recorded } => {
                let base = self.tested(source, recorded).await?;
                let large = |fault: &Fault| fault.what == TOO_LARGE;
                let undecided = base.fault.as_ref().filter(|fault| large(fault));
                let undecided = undecided.map(|_| "an output is too large for the test".to_owned());
                Ok(Grade { base, plus: None, undecided })
            }
        }
    }

    /// The program's outputs against the reference's.
    async fn compared(&self, answers: &Answers) -> Result<Part, SandboxError> {
        let How::Inputs { tolerance, oracle, .. } = &self.tests.how else {
            return Ok(Part::default());
        };
        let total = answers.wires.len();
        if total == 0 {
            return Ok(Part::default());
        }
        let (members, exact) = (*oracle == Oracle::Members, oracle.is_exact(*tolerance));
        let called = self.called(&answers.wires, &answers.seconds, members, exact).await?;
        let called = match called {
            Ok(called) => called,
            Err(what) => return Ok(Part::failed(total, 0, what, None)),
        };
        let mut part = Part { passed: 0, total, fault: None };
        for (at, call) in called.iter().enumerate() {
            let what = match call {
                Called::Returned { value, .. } => {
                    let (input, expected) = (&answers.inputs[at], &answers.outputs[at]);
                    match oracle.accepts(input, value, expected, *tolerance) {
                        true => {
                            part.passed += 1;
                            continue;
                        }
                        false => "wrong".to_owned(),
                    }
                }
                other => fault(other),
            };
            part.fault.get_or_insert(Fault { what, input: Some(at + 1) });
        }
        Ok(part)
    }

    /// The test on the program's outputs.
    async fn tested(&self, source: &str, recorded: &[Recorded]) -> Result<Part, SandboxError> {
        let total = recorded.len();
        let inputs: Vec<String> = recorded.iter().map(|call| call.input.clone()).collect();
        let seconds: Vec<f64> = recorded.iter().map(|call| call.seconds).collect();
        let called = match self.called(&inputs, &seconds, false, true).await? {
            Ok(called) => called,
            Err(what) => return Ok(Part::failed(total, 0, what, None)),
        };
        // The test is asked about the outputs up to the first call that gave none.
        let returned = |call: &Called| match call {
            Called::Returned { value, .. } => Some(value.clone()),
            _ => None,
        };
        let outputs: Vec<Value> = called.iter().map_while(returned).collect();
        let (reference, name) = (&self.tests.reference, &self.tests.entry_point);
        let said = runs::replay(self.sandbox, reference, name, source, recorded, &outputs).await?;
        Ok(match (said, called.get(outputs.len())) {
            (None, None) if outputs.len() == total => Part { passed: total, total, fault: None },
            (Some((made, _)), Some(call)) if made > outputs.len() => {
                Part::failed(total, outputs.len(), fault(call), Some(made))
            }
            (Some((made, kind)), _) => {
                let what = if kind == "AssertionError" { "wrong".to_owned() } else { kind };
                Part::failed(total, made.saturating_sub(1), what, Some(made.max(1)))
            }
            // A test that passes without all its answers has not been asked.
            (None, call) => {
                let what = call.map_or_else(|| "no answer".to_owned(), fault);
                Part::failed(total, outputs.len(), what, Some(outputs.len() + 1))
            }
        })
    }

    /// The program's calls, or in a few words how it ended without them.
    async fn called(
        &self,
        inputs: &[String],
        reference: &[f64],
        members: bool,
        exact: bool,
    ) -> Result<Result<Vec<Called>, String>, SandboxError> {
        let (seconds, long) = allowed(reference);
        let calls = Calls {
            program: self.program,
            preamble: self.tests.preamble(),
            entry_point: &self.tests.entry_point,
            inputs,
            seconds: &seconds,
            long,
            members,
            exact,
        };
        Ok(match calls.run(self.sandbox).await? {
            Ran::Called(called) => Ok(called),
            Ran::NoFunction => Err(format!("no function `{}`", self.tests.entry_point)),
            Ran::Ended(outcome) => Err(ended(&outcome)),
        })
    }
}

/// A call that gave nothing, in a few words.
fn fault(call: &Called) -> String {
    match call {
        Called::Returned { .. } => "wrong".to_owned(),
        Called::Raised { kind } => format!("exception {kind}"),
        Called::OutOfTime => "time".to_owned(),
        Called::OutOfMemory => "memory".to_owned(),
        Called::TooLarge => TOO_LARGE.to_owned(),
    }
}

/// The end of a program that was not to end, in a few words.
fn ended(outcome: &Outcome) -> String {
    match outcome {
        Outcome::CpuLimit | Outcome::WallLimit => "time".to_owned(),
        Outcome::MemoryLimit => "memory".to_owned(),
        Outcome::Raised { kind, .. } | Outcome::CheckFailed { kind, .. } => {
            format!("exception {kind}")
        }
        Outcome::SyntaxError { .. } => "no valid Python".to_owned(),
        Outcome::Exited { code } => format!("exit with code {code}"),
        Outcome::Denied { what } => format!("denied: {what}"),
        Outcome::Killed { signal } => format!("ended by signal {signal}"),
        Outcome::Finished { .. } | Outcome::AnswerUnreadable { .. } => "no outputs".to_owned(),
    }
}
