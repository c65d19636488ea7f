//! Runs of a function on inputs, in the sandbox: `driver.py` around a program.

use std::io::Read;
use std::time::Duration;

use super::super::json::Json;
use super::value::Value;
use crate::program::sandbox::{Limits, Outcome, Program, Sandbox, SandboxError};

const DRIVER: &str = include_str!("driver.py");
/// Most bytes of an answer when it is unpacked.
const UNPACKED: u64 = 64 << 20;
/// Runs for the outputs of one program, each as many as an answer carries.
const MOST_RUNS: usize = 64;

/// Processor time of a run, in seconds, and that of one that needs long.
const SECONDS: u64 = 60;
const MANY_SECONDS: u64 = 300;

/// What a run may use; one of two kinds, so that interpreters can stand ready.
fn limits(long: bool) -> Limits {
    let seconds = if long { MANY_SECONDS } else { SECONDS };
    Limits {
        wall: Duration::from_secs(5 * seconds),
        cpu: Duration::from_secs(seconds),
        memory_bytes: 4 << 30,
        output_bytes: 16 << 10,
        ..Limits::default()
    }
}

/// What came of one call.
#[derive(Clone, Debug, PartialEq)]
pub enum Called {
    /// With the processor time that it took, in seconds.
    Returned {
        value: Value,
        seconds: f64,
    },
    Raised {
        kind: String,
    },
    OutOfTime,
    OutOfMemory,
    /// More than can be carried.
    TooLarge,
}

/// What came of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    /// The calls made, in order; fewer than asked for where the last one ended the run.
    Called(Vec<Called>),
    /// It defines no such function.
    NoFunction,
    /// It ended before or within a call, in a way that gave nothing back.
    Ended(Outcome),
}

/// A function to call.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    pub program: &'a str,
    /// Trusted source that runs before it.
    pub preamble: &'a str,
    pub entry_point: &'a str,
    /// The arguments of each call, as a JSON list.
    pub inputs: &'a [String],
    /// Processor time for each call.
    pub seconds: &'a [f64],
    /// Whether the calls together may need long.
    pub long: bool,
    /// Whether what can be gone through counts as what it holds.
    pub members: bool,
    /// Whether no more is asked of an output than whether it is equal; long ones come as digests then.
    pub exact: bool,
}

impl Calls<'_> {
    /// Calls the function on every input, in as few runs as carry the outputs.
    pub async fn run(&self, sandbox: &Sandbox) -> Result<Ran, SandboxError> {
        let mut calls = Vec::new();
        let mut spent = 0.0;
        for _ in 0..MOST_RUNS {
            let job = format!(
                "{{\"entry_point\":{},\"first\":{},\"members\":{},\"exact\":{},\
                 \"inputs\":[{}],\"seconds\":{:?}}}",
                quoted(self.entry_point),
                calls.len(),
                self.members,
                self.exact,
                self.inputs.join(","),
                self.seconds
            );
            let program = (self.program, self.preamble);
            let (answer, seconds) =
                match drive(sandbox, program, &job, "outputs", self.long).await? {
                    Ok(answered) => answered,
                    Err(outcome) => return Ok(Ran::Ended(outcome)),
                };
            let Some(again) = read(&answer, &mut calls) else {
                return Ok(Ran::Ended(spoilt()));
            };
            spent += seconds;
            match again {
                _ if calls.len() > self.inputs.len() => return Ok(Ran::Ended(spoilt())),
                Again::No => return Ok(Ran::Called(calls)),
                Again::NoFunction => return Ok(Ran::NoFunction),
                Again::Yes if spent > limits(self.long).cpu.as_secs_f64() => break,
                Again::Yes => {}
            }
        }
        // So many runs for outputs of these sizes, and no end.
        Ok(Ran::Ended(Outcome::CpuLimit))
    }
}

/// A call that a test makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Its arguments as a JSON list.
    pub input: String,
    /// The reference's processor time.
    pub seconds: f64,
}

/// The calls that `test` makes when it is run on the reference. The inner error says how it failed.
pub async fn record(
    sandbox: &Sandbox,
    reference: &str,
    entry_point: &str,
    test: &str,
) -> Result<Result<Vec<Recorded>, Outcome>, SandboxError> {
    let job = format!("{{\"entry_point\":{},\"test\":{}}}", quoted(entry_point), quoted(test));
    let answer = match drive(sandbox, (reference, ""), &job, "record", true).await? {
        Ok((answer, _)) => answer,
        Err(outcome) => return Ok(Err(outcome)),
    };
    let calls = unpacked(&answer).and_then(|text| {
        let one = |line: &str| {
            let json = Json::read(line).ok()?;
            let [input, Json::Number(seconds)] = json.list()? else { return None };
            let Value::List(input) = Value::of(input).ok()? else { return None };
            Some(Recorded { input: wire(&input), seconds: seconds.parse().ok()? })
        };
        text.lines().map(one).collect::<Option<Vec<_>>>()
    });
    Ok(calls.ok_or_else(spoilt))
}

/// What `test` says of outputs that were had before, for the calls that it made then: none where they pass,
/// or how many calls it made until it failed, and by which exception.
pub async fn replay(
    sandbox: &Sandbox,
    reference: &str,
    entry_point: &str,
    test: &str,
    recorded: &[Recorded],
    outputs: &[Value],
) -> Result<Option<(usize, String)>, SandboxError> {
    let inputs: Vec<&str> = recorded.iter().map(|call| call.input.as_str()).collect();
    let job = format!(
        "{{\"entry_point\":{},\"test\":{},\"exact\":true,\"inputs\":[{}],\"outputs\":{}}}",
        quoted(entry_point),
        quoted(test),
        inputs.join(","),
        wire(outputs)
    );
    Ok(match drive(sandbox, (reference, ""), &job, "replay", true).await? {
        Ok((answer, _)) if answer == "passed" => None,
        Ok((answer, _)) => {
            let mut words = answer.split(' ').skip(1);
            let made = words.next().and_then(|made| made.parse().ok()).unwrap_or(0);
            Some((made, words.next().unwrap_or("an error").to_owned()))
        }
        Err(outcome) => Some((0, outcome.to_string())),
    })
}

/// Values as a JSON list for the driver.
pub fn wire(values: &[Value]) -> String {
    let mut text = String::from("[");
    for (at, value) in values.iter().enumerate() {
        text.push_str(if at > 0 { "," } else { "" });
        value.write(&mut text);
    }
    text + "]"
}

/// Runs a program, after what precedes it, with the driver beside it; the answer of one of the driver's
/// functions, and the processor time of all in seconds.
async fn drive(
    sandbox: &Sandbox,
    (program, preamble): (&str, &str),
    job: &str,
    function: &str,
    long: bool,
) -> Result<Result<(String, f64), Outcome>, SandboxError> {
    // The driver is a module of its own; it leaves no names where the program's are.
    let setup = format!(
        "{preamble}\nimport sys\n\
         sys.modules['unsay_driver'] = type(sys)('unsay_driver')\n\
         exec(compile({}, '<driver>', 'exec'), sys.modules['unsay_driver'].__dict__)\n\
         sys.modules['unsay_driver'].job = sys.modules['unsay_driver'].json.loads({})\n\
         del sys\n",
        quoted(DRIVER),
        quoted(job)
    );
    let checks =
        format!("import unsay_driver as unsay_answer\nunsay_answer = unsay_answer.{function}()\n");
    let program = Program {
        source: program.to_owned(),
        result_variable: Some("unsay_answer".to_owned()),
        stdin: None,
        setup: Some(setup),
        checks: Some(checks),
    };
    let run = sandbox.run(&program, &limits(long)).await?;
    Ok(match run.outcome {
        Outcome::Finished { answer: Some(answer) } => Ok((answer, run.cpu_seconds)),
        Outcome::Finished { answer: None } => Err(spoilt()),
        outcome => Err(outcome),
    })
}

/// The outcome of a program that made the driver say what it does not say.
fn spoilt() -> Outcome {
    Outcome::Denied { what: "changing what runs the tests".to_owned() }
}

enum Again {
    No,
    Yes,
    NoFunction,
}

/// Reads the driver's lines into `calls`; whether there is more to be asked for. None where the driver
/// wrote no such thing.
fn read(answer: &str, calls: &mut Vec<Called>) -> Option<Again> {
    for line in unpacked(answer)?.lines() {
        let json = Json::read(line).ok()?;
        let (word, rest) = json.list()?.split_first()?;
        let called = match (word.text()?, rest) {
            ("value", [value, Json::Number(seconds)]) => {
                Called::Returned { value: Value::of(value).ok()?, seconds: seconds.parse().ok()? }
            }
            ("raised", [kind]) => Called::Raised { kind: kind.text()?.to_owned() },
            ("time", []) => Called::OutOfTime,
            ("memory", []) => Called::OutOfMemory,
            ("large", []) => Called::TooLarge,
            ("more", []) => return Some(Again::Yes),
            ("missing", []) => return Some(Again::NoFunction),
            _ => return None,
        };
        calls.push(called);
    }
    Some(Again::No)
}

/// What the driver packed.
fn unpacked(answer: &str) -> Option<String> {
    let rest = answer.get(1..)?;
    match answer.as_bytes().first()? {
        b'p' => Some(rest.to_owned()),
        b'z' => {
            let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
            let packed: Option<Vec<u8>> = rest.as_bytes().chunks(2).map(pair).collect();
            let packed = packed?;
            let mut text = String::new();
            let mut plain = flate2::read::ZlibDecoder::new(packed.as_slice()).take(UNPACKED);
            plain.read_to_string(&mut text).ok()?;
            Some(text)
        }
        _ => None,
    }
}

/// A text as Python and JSON both read it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
