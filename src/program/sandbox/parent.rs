//! The parent's side of a run: starts the child, gives it the program, drains its output, takes its report.

use std::io::{self, PipeReader, Read};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Place;
use super::confine::{checked, cpu_seconds};
use super::outcome::{Layer, Limits, Program, Run, SandboxError};
use super::protocol::{CHILD_ARGUMENT, GREETING, Report, Setting, receive, send};
use super::work_folder::WorkFolder;

/// How long after the wall limit the child's own supervision is trusted to work.
const PATIENCE: Duration = Duration::from_secs(60);

/// An interpreter in its sandbox that waits for its one program, with the work folder of its own.
/// Dropped, it is ended and its folder removed.
#[derive(Debug)]
pub(super) struct Standing {
    process: Process,
    work: WorkFolder,
    limits: Limits,
}

impl Standing {
    /// Starts one.
    pub(super) fn start(place: &Place, limits: &Limits) -> Result<Standing, SandboxError> {
        let work = WorkFolder::create(&place.work_root)?;
        let setting = Setting {
            interpreter: place.interpreter.clone(),
            work: work.path().to_owned(),
            limits: limits.clone(),
            degraded: place.degraded,
        };
        let process = Process::start(place, &setting)?;
        Ok(Standing { process, work, limits: limits.clone() })
    }

    /// The limits that it was started with.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Runs a program on this thread. `abandoned` ends when nobody waits for the run any more.
    pub(super) fn run(
        self,
        program: &Program,
        abandoned: Option<PipeReader>,
    ) -> Result<(Run, Vec<Layer>), SandboxError> {
        let Standing { mut process, work, limits } = self;
        let ended = process.give(program).and_then(|()| process.finish(&limits, abandoned));
        let removed = work.remove();
        let (run, layers) = ended?;
        removed?;
        Ok((run, layers))
    }
}

/// The child, its control socket and its output. Dropped, it is ended and reaped.
#[derive(Debug)]
struct Process {
    child: Child,
    control: UnixStream,
    stdout: Output,
    stderr: Output,
    path: String,
}

impl Process {
    fn start(place: &Place, setting: &Setting) -> Result<Process, SandboxError> {
        let path = place.child.display().to_string();
        let system = |what| move |source| SandboxError::System { what, source };
        let (control, childs_end) =
            UnixStream::pair().map_err(system("make its control socket"))?;
        let child = Command::new(&place.child)
            .arg(CHILD_ARGUMENT)
            .arg(&setting.work)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(childs_end))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal from the terminal is the parent's to act on.
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| SandboxError::Child {
            path: path.clone(),
            why: format!("could not be started: {error}"),
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let limit = setting.limits.output_bytes;
        let mut process = Process {
            child,
            control,
            stdout: Output::of(stdout.map(OwnedFd::from), limit),
            stderr: Output::of(stderr.map(OwnedFd::from), limit),
            path,
        };
        process.greet(setting)?;
        Ok(process)
    }

    /// Hears the child's greeting, which another program would not give, and tells it what to start.
    fn greet(&mut self, setting: &Setting) -> Result<(), SandboxError> {
        let mut greeting = [0; GREETING.len()];
        let greeted = self
            .control
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| self.control.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| self.control.read_exact(&mut greeting));
        if greeted.is_err() || greeting != *GREETING {
            return Err(SandboxError::Child {
                path: self.path.clone(),
                why: "did not answer as Unsay's sandbox does; configure the path of the `unsay` \
                      binary"
                    .to_owned(),
            });
        }
        send(&mut self.control, setting)
            .map_err(|source| SandboxError::System { what: "tell its child what to start", source })
    }

    /// Gives the interpreter its program.
    fn give(&mut self, program: &Program) -> Result<(), SandboxError> {
        match send(&mut self.control, program) {
            // The child is gone or going; what it reported, if anything, says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(|source| SandboxError::System {
                what: "give its child the program",
                source,
            }),
        }
    }

    /// Drains the output until the run is over, and takes the report.
    fn finish(
        mut self,
        limits: &Limits,
        mut abandoned: Option<PipeReader>,
    ) -> Result<(Run, Vec<Layer>), SandboxError> {
        let report = self.drain(limits.wall, &mut abandoned);
        self.end();
        let path = self.path.clone();
        let silent = |source: io::Error| SandboxError::Child {
            path: path.clone(),
            why: format!("ended without a report: {source}"),
        };
        match report.map_err(silent)? {
            Report::LayerMissing { layer, why } => Err(SandboxError::LayerMissing { layer, why }),
            Report::Failed { what } => Err(SandboxError::Start { why: what }),
            Report::Ended { ending, layers } => {
                let (stdout, cut_stdout) = self.stdout.text();
                let (stderr, cut_stderr) = self.stderr.text();
                let (wall_seconds, cpu_spent) = (ending.wall_seconds, ending.cpu_seconds);
                let answer_type = ending.answer_type();
                let outcome = ending.outcome(cpu_seconds(limits), &stderr)?;
                let run = Run {
                    outcome,
                    stdout,
                    stderr,
                    truncated: cut_stdout || cut_stderr,
                    answer_type,
                    wall_seconds,
                    cpu_seconds: cpu_spent,
                };
                Ok((run, layers))
            }
        }
    }

    /// Reads the output as it comes, so that the program never waits for it, until the child
    /// reports, goes away, or is past all patience.
    fn drain(&mut self, wall: Duration, abandoned: &mut Option<PipeReader>) -> io::Result<Report> {
        let start = Instant::now();
        loop {
            let left = (wall + PATIENCE).saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let on = [
                self.stdout.descriptor(),
                self.stderr.descriptor(),
                self.control.as_raw_fd(),
                abandoned.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            ];
            let [stdout, stderr, report, gone] = ready(on, left)?;
            if stdout {
                self.stdout.read_once()?;
            }
            if stderr {
                self.stderr.read_once()?;
            }
            if report {
                let report = receive(&mut self.control);
                self.stdout.read_rest()?;
                self.stderr.read_rest()?;
                return report;
            }
            if gone {
                // The child takes this as the end of its parent.
                self.control.shutdown(Shutdown::Write)?;
                *abandoned = None;
            }
        }
    }

    /// Ends the child, if it has not ended, and reaps it.
    fn end(&mut self) {
        // Told over the socket it clears away what is its own; killed it takes the rest with it.
        let _ = self.control.shutdown(Shutdown::Both);
        // SAFETY: a child that is not reaped keeps its number; the result is checked.
        let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, self.child.id(), 0) };
        if let Ok(handle) = checked(handle) {
            // SAFETY: just made, owned by nobody else.
            let handle = unsafe { OwnedFd::from_raw_fd(handle as RawFd) };
            let _ = ready([handle.as_raw_fd()], Duration::from_secs(10));
        }
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// One output stream: what is kept of it, and whether more was thrown away.
#[derive(Debug)]
struct Output {
    from: Option<OwnedFd>,
    kept: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl Output {
    fn of(from: Option<OwnedFd>, limit: usize) -> Output {
        Output { from, kept: Vec::new(), limit, cut: false }
    }

    fn descriptor(&self) -> RawFd {
        self.from.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Reads what is there; at the end of the stream it is closed.
    fn read_once(&mut self) -> io::Result<()> {
        let mut part = [0u8; 1 << 16];
        // SAFETY: the buffer is live and its length is given; a closed stream fails.
        let read = checked(unsafe {
            libc::read(self.descriptor(), part.as_mut_ptr().cast(), part.len()) as i64
        });
        match read {
            Ok(0) => self.from = None,
            Ok(count) => self.keep(&part[..count as usize]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn keep(&mut self, part: &[u8]) {
        let room = self.limit - self.kept.len();
        self.cut |= part.len() > room;
        self.kept.extend_from_slice(&part[..part.len().min(room)]);
    }

    /// Reads what is left in the pipe, without waiting for its end.
    fn read_rest(&mut self) -> io::Result<()> {
        while self.from.is_some() && ready([self.descriptor()], Duration::ZERO)?[0] {
            self.read_once()?;
        }
        Ok(())
    }

    /// The text kept, and whether it was cut; a character that the cut split is left out.
    fn text(&self) -> (String, bool) {
        let mut kept = self.kept.as_slice();
        if self.cut
            && let Err(error) = std::str::from_utf8(kept)
            && error.error_len().is_none()
        {
            kept = &kept[..error.valid_up_to()];
        }
        (String::from_utf8_lossy(kept).into_owned(), self.cut)
    }
}

/// Which of the descriptors have something to read, or have ended; waits for the first.
fn ready<const N: usize>(on: [RawFd; N], at_most: Duration) -> io::Result<[bool; N]> {
    let mut polled = on.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let milliseconds = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the array is live and its length is given.
    match checked(unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Err(_) => Ok([false; N]),
        Ok(_) => Ok(polled.map(|descriptor| descriptor.revents != 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_between_characters_and_said_to_be() {
        let mut output = Output::of(None, 4);
        output.keep("aé".as_bytes());
        assert_eq!(output.text(), ("aé".to_owned(), false));
        output.keep("éb".as_bytes());
        assert_eq!(output.text(), ("aé".to_owned(), true));
        output.keep(b"more");
        assert_eq!(output.text(), ("aé".to_owned(), true));
    }

    #[test]
    fn invalid_bytes_are_replaced_wherever_they_stand() {
        let mut output = Output::of(None, 100);
        output.keep(b"a\xff\xc3");
        assert_eq!(output.text(), ("a\u{fffd}\u{fffd}".to_owned(), false));
    }
}
