//! What the parent and the sandbox's child say to each other, and how what was seen of a run
//! becomes its outcome.
//!
//! The parent writes a `Setting` to the control socket and, then or later, the `Program`; the child answers
//! with a `Report`. All are JSON behind their length.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::interpreter::Interpreter;
use super::outcome::{Layer, Limits, Outcome, SandboxError};

/// The first argument that makes this binary the sandbox's child.
pub const CHILD_ARGUMENT: &str = "__sandbox-child";

/// The child's first bytes: without them the program behind the path is not ours.
pub const GREETING: &[u8; 16] = b"unsay-sandbox-1\n";

/// The longest text of an answer.
pub const ANSWER_BYTES: usize = 256 << 10;

/// The most that is read from the result channel: an answer of which each byte is escaped.
pub const RESULT_BYTES: usize = 8 * ANSWER_BYTES;

/// Threads that a program may have at a time.
pub const THREADS: u64 = 256;

const MESSAGE_BYTES: u32 = 1 << 30;

/// Where a program will run and what it may use: what an interpreter can be started with before its
/// program is known.
#[derive(Debug, Serialize, Deserialize)]
pub struct Setting {
    pub interpreter: Interpreter,
    pub work: PathBuf,
    pub limits: Limits,
    /// Whether it starts without the resource limits, Landlock or seccomp where the machine lacks them.
    pub degraded: bool,
}

/// What the child says in the end.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// A required layer is missing; nothing was run.
    LayerMissing {
        layer: String,
        why: String,
    },
    /// A system call of the child's own failed; nothing was run.
    Failed {
        what: String,
    },
    Ended {
        ending: Ending,
        layers: Vec<Layer>,
    },
}

/// What was seen of the interpreter's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// Exit code, or none when a signal ended it.
    pub exit: Option<i32>,
    pub signal: Option<i32>,
    pub stopped: Option<Stop>,
    pub cpu_seconds: f64,
    pub wall_seconds: f64,
    pub channel: Channel,
}

/// Why the supervisor ended the run itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    Wall,
    Threads,
    /// Nobody waits for the result any more.
    Abandoned,
}

/// What came over the result channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Channel {
    /// Nothing: the harness never ran.
    Silent,
    /// The harness started the program and never came back.
    Started,
    /// The harness's own result.
    Result(Message),
    /// Something else wrote to it.
    Tampered,
}

/// A result as the harness writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub tag: String,
    pub fields: Vec<Value>,
}

impl Channel {
    /// Reads what came over the channel; only what stands behind `secret` is the harness's.
    pub fn read(bytes: &[u8], secret: &[u8]) -> Channel {
        if bytes.is_empty() {
            return Channel::Silent;
        }
        let started = bytes.strip_prefix(secret).and_then(|rest| rest.strip_prefix(b"started\n"));
        match started {
            None => Channel::Tampered,
            Some([]) => Channel::Started,
            Some(rest) => rest
                .strip_prefix(secret)
                .and_then(|json| serde_json::from_slice(json).ok())
                .map_or(Channel::Tampered, Channel::Result),
        }
    }
}

impl Ending {
    /// The outcome of a run that ended so. `cpu_limit`: whole seconds; `stderr`: for an
    /// interpreter that did not start.
    pub fn outcome(self, cpu_limit: u64, stderr: &str) -> Result<Outcome, SandboxError> {
        match self.stopped {
            Some(Stop::Wall) => return Ok(Outcome::WallLimit),
            Some(Stop::Threads) => {
                return Ok(denied(&format!("running more than {THREADS} threads")));
            }
            Some(Stop::Abandoned) | None => {}
        }
        if let Some(signal) = self.signal {
            return Ok(self.ended_by_signal(signal, cpu_limit));
        }
        let code = self.exit.unwrap_or(-1);
        match self.channel {
            Channel::Tampered => Ok(denied("writing to the result channel")),
            Channel::Started => Ok(Outcome::Exited { code }),
            Channel::Result(message) => message.outcome(),
            Channel::Silent => {
                Err(SandboxError::Start { why: format!("exit code {code}; {}", last_line(stderr)) })
            }
        }
    }

    #[cfg(unix)]
    fn ended_by_signal(&self, signal: i32, cpu_limit: u64) -> Outcome {
        // The kernel enforces the limit by ticks, which on a busy machine run far ahead of the
        // exact time that it reports.
        let spent = self.cpu_seconds >= 0.5 * cpu_limit as f64;
        match signal {
            libc::SIGXCPU | libc::SIGKILL if spent => Outcome::CpuLimit,
            libc::SIGSYS => denied("a system call that no program needs"),
            signal => Outcome::Killed { signal },
        }
    }

    #[cfg(not(unix))]
    fn ended_by_signal(&self, signal: i32, _: u64) -> Outcome {
        Outcome::Killed { signal }
    }
}

impl Ending {
    /// The type of the answer's value, as Python names it.
    pub fn answer_type(&self) -> Option<String> {
        match &self.channel {
            Channel::Result(Message { tag, fields }) if tag == "finished" => {
                Some(fields.get(1)?.as_str()?.to_owned())
            }
            _ => None,
        }
    }
}

impl Message {
    fn outcome(self) -> Result<Outcome, SandboxError> {
        let text = |at: usize| self.fields.get(at).and_then(Value::as_str).map(str::to_owned);
        let number = |at: usize| self.fields.get(at).and_then(Value::as_i64);
        let line = |at: usize| number(at).and_then(|line| usize::try_from(line).ok());
        let first = || text(0).unwrap_or_default();
        let second = || text(1).unwrap_or_default();
        Ok(match self.tag.as_str() {
            "finished" => Outcome::Finished { answer: text(0) },
            "unreadable" => Outcome::AnswerUnreadable { why: first() },
            "raised" => Outcome::Raised { kind: first(), message: second(), line: line(2) },
            "check_failed" => {
                Outcome::CheckFailed { kind: first(), message: second(), line: line(2) }
            }
            "syntax_error" => Outcome::SyntaxError { message: first(), line: line(1) },
            "exited" => {
                let code = number(0).and_then(|code| i32::try_from(code).ok());
                Outcome::Exited { code: code.unwrap_or(-1) }
            }
            "memory" => Outcome::MemoryLimit,
            "denied" => Outcome::Denied { what: first() },
            "setup_failed" => return Err(SandboxError::Setup { what: first() }),
            "checks_invalid" => {
                return Err(SandboxError::Checks { message: first(), line: line(1) });
            }
            _ => denied("writing to the result channel"),
        })
    }
}

fn denied(what: &str) -> Outcome {
    Outcome::Denied { what: what.to_owned() }
}

fn last_line(stderr: &str) -> &str {
    stderr.trim().lines().next_back().unwrap_or("it said nothing")
}

/// Writes a message behind its length.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MESSAGE_BYTES);
    let length = length.ok_or_else(|| io::Error::other("the program is too long"))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&bytes)
}

/// Reads one message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MESSAGE_BYTES {
        return Err(io::Error::other("message too long"));
    }
    let mut bytes = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Program;
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn channel(parts: &[&[u8]]) -> Channel {
        Channel::read(&parts.concat(), SECRET)
    }

    fn ending(channel: Channel) -> Ending {
        let (cpu_seconds, wall_seconds) = (0.1, 0.2);
        Ending { exit: Some(0), signal: None, stopped: None, cpu_seconds, wall_seconds, channel }
    }

    #[test]
    fn only_what_stands_behind_the_secret_is_a_result() {
        let result: &[u8] = br#"{"tag":"finished","fields":["4","int"]}"#;
        let started: &[u8] = b"started\n";
        assert_eq!(channel(&[]), Channel::Silent);
        assert_eq!(channel(&[SECRET, started]), Channel::Started);
        let believed = channel(&[SECRET, started, SECRET, result]);
        assert_eq!(ending(believed.clone()).answer_type().as_deref(), Some("int"));
        let outcome = ending(believed).outcome(1, "").unwrap();
        assert_eq!(outcome, Outcome::Finished { answer: Some("4".to_owned()) });
        for forged in [
            &[result][..],
            &[SECRET, result],
            &[SECRET, started, result],
            &[SECRET, started, b"x", SECRET, result],
            &[SECRET, started, SECRET, result, b"x"],
            &[SECRET, started, SECRET, result, SECRET, result],
            &[SECRET, started, SECRET],
            &[&SECRET[1..], started, SECRET, result],
        ] {
            assert_eq!(channel(forged), Channel::Tampered);
        }
    }

    #[test]
    fn a_signal_is_a_limit_only_when_the_time_was_spent() {
        let killed = |signal, cpu_seconds| {
            let ending = Ending {
                exit: None,
                signal: Some(signal),
                cpu_seconds,
                ..ending(Channel::Started)
            };
            ending.outcome(10, "").unwrap()
        };
        assert_eq!(killed(libc::SIGXCPU, 9.8), Outcome::CpuLimit);
        assert_eq!(killed(libc::SIGKILL, 10.9), Outcome::CpuLimit);
        assert_eq!(killed(libc::SIGXCPU, 0.1), Outcome::Killed { signal: libc::SIGXCPU });
        assert_eq!(killed(libc::SIGKILL, 0.1), Outcome::Killed { signal: libc::SIGKILL });
        assert!(matches!(killed(libc::SIGSYS, 0.1), Outcome::Denied { .. }));
    }

    #[test]
    fn an_end_without_a_result_is_never_finished() {
        let exited = ending(Channel::Started).outcome(1, "").unwrap();
        assert_eq!(exited, Outcome::Exited { code: 0 });
        let silent = ending(Channel::Silent).outcome(1, "first\nno libpython").unwrap_err();
        assert!(silent.to_string().contains("no libpython"), "{silent}");
        let stopped = Ending { stopped: Some(Stop::Wall), ..ending(Channel::Started) };
        assert_eq!(stopped.outcome(1, "").unwrap(), Outcome::WallLimit);
        let unknown = Message { tag: "passed".to_owned(), fields: Vec::new() };
        let outcome = ending(Channel::Result(unknown)).outcome(1, "").unwrap();
        assert!(matches!(outcome, Outcome::Denied { .. }));
    }

    #[test]
    fn messages_arrive_as_they_were_sent_or_not_at_all() {
        let program = Program::with_answer("ans = 'é\\0'", "ans");
        let mut wire = Vec::new();
        send(&mut wire, &program).unwrap();
        assert_eq!(receive::<Program>(&mut wire.as_slice()).unwrap(), program);
        assert!(receive::<Program>(&mut &wire[..wire.len() - 1]).is_err());
        assert!(receive::<Program>(&mut [255; 8].as_slice()).is_err());
    }
}
