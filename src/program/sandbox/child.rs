//! The sandbox's own processes: this binary, executed again.
//!
//! Three of them for a run, since a namespace of processes counts from a fork on:
//! - the *keeper* enters the namespaces, lays out the work folder, and clears it away in the end;
//! - the *supervisor*, first process of the new namespace (so all others die with it), watches
//!   the limits, reads the result channel, and ends the run when the parent goes away;
//! - the *interpreter*, which puts the remaining layers on itself and becomes Python.
//!
//! No process here has a second thread, so forking is safe.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::confine::{self, active, checked, missing};
use super::outcome::{Layer, Program};
use super::protocol::{
    ANSWER_BYTES, Channel, Ending, GREETING, RESULT_BYTES, Report, Setting, Stop, THREADS, receive,
    send,
};
use super::syscalls::{self, RESULT_FD};
use super::work_folder;

const HARNESS: &str = include_str!("harness.py");
const JOB_FD: RawFd = 3;
/// How often the supervisor counts threads; all else wakes it by itself.
const WATCH: Duration = Duration::from_millis(25);

/// What the interpreter's process writes when a layer cannot be put on, behind the secret.
const UNCONFINED: &[u8] = b"unconfined ";
/// The same where it goes on without layers, as it may if the setting says so.
const DEGRADED: &[u8] = b"degraded ";

/// The sandbox's child process: speaks with the parent over standard input. Called by the
/// binary's `main` before anything else when the first argument is `CHILD_ARGUMENT`.
pub fn child_main(_arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match keep() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unsay: the sandbox's child process was started without its parent: {error}");
            ExitCode::from(2)
        }
    }
}

/// The keeper.
fn keep() -> io::Result<()> {
    let mut control = take_control()?;
    control.write_all(GREETING)?;
    let setting: Setting = receive(&mut control)?;
    let mut layers = confine::enter_namespaces();
    layers.push(confine::bound_work_folder(&setting.work, setting.limits.file_bytes));
    // SAFETY: this process has one thread.
    match checked(unsafe { libc::fork() }) {
        Ok(0) => {
            if let Some(report) = supervise(&setting, layers, &mut control) {
                let _ = send(&mut control, &report);
            }
            leave();
        }
        Ok(supervisor) => {
            drop(control);
            let waited = wait_for(supervisor as i32);
            confine::unmount(&setting.work);
            // The parent removes the folder too; it may be gone.
            let _ = work_folder::remove(&setting.work);
            waited.map(drop)
        }
        Err(error) => send(&mut control, &failed("start its supervisor", error)),
    }
}

/// Moves the control socket away from standard input, which becomes empty.
fn take_control() -> io::Result<UnixStream> {
    // SAFETY: duplicates a descriptor number; the result is checked before it is owned.
    let moved = checked(unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 10) })? as RawFd;
    // SAFETY: `moved` was just made and nobody else has it.
    let control = unsafe { UnixStream::from_raw_fd(moved) };
    control.peer_addr()?;
    onto(File::open("/dev/null")?.into(), 0)?;
    Ok(control)
}

fn failed(what: &str, error: impl ToString) -> Report {
    Report::Failed { what: format!("could not {what}: {}", error.to_string()) }
}

/// The supervisor: starts the interpreter, gives it the program when that comes, and watches it to its end.
/// `None` where no program came: there is nobody to report to.
fn supervise(
    setting: &Setting,
    mut layers: Vec<Layer>,
    control: &mut UnixStream,
) -> Option<Report> {
    // SAFETY: numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
    let landlock = confine::landlock_version();
    if landlock < 1 && !setting.degraded {
        return Some(Report::LayerMissing {
            layer: "landlock".to_owned(),
            why: "the kernel does not offer it".to_owned(),
        });
    }
    let mut started = match start(setting, layers.first().is_some_and(Layer::is_active)) {
        Ok(started) => started,
        Err(error) => return Some(failed("start the interpreter", error)),
    };
    let Ok(program) = receive::<Program>(control) else {
        started.end();
        return None;
    };
    // An interpreter that is gone already takes nothing; what it said is read below.
    let _ = started.give(&program, setting);
    let secret = started.secret;
    let (ending, bytes) = match watch(started, setting, control) {
        Ok(watched) => watched,
        Err(error) => return Some(failed("watch the interpreter", error)),
    };
    let unconfined = bytes.strip_prefix(&secret).and_then(|rest| rest.strip_prefix(UNCONFINED));
    if let Some(said) = unconfined {
        let (layer, why): (String, String) =
            serde_json::from_slice(said.trim_ascii_end()).unwrap_or_default();
        return Some(match layer.as_str() {
            "landlock" | "seccomp" | "privileges" | "resource limits" => {
                Report::LayerMissing { layer, why }
            }
            _ => Report::Failed { what: format!("could not set up the {layer}: {why}") },
        });
    }
    let skipped = degraded(&bytes, &secret).map_or_else(Skipped::new, |(skipped, _)| skipped);
    for (name, detail) in [
        ("resource limits", "processor time, memory, files, threads".to_owned()),
        ("landlock", format!("version {landlock}")),
        ("seccomp", "a list of allowed system calls".to_owned()),
    ] {
        layers.push(match skipped.iter().find(|(layer, _)| layer == name) {
            Some((_, why)) => missing(name, true, why),
            None => active(name, true, detail),
        });
    }
    Some(Report::Ended { ending, layers })
}

/// Layers that were left out, each with why.
type Skipped = Vec<(String, String)>;

/// What the interpreter's process said of layers that it left out, and where that ends.
fn degraded(bytes: &[u8], secret: &[u8]) -> Option<(Skipped, usize)> {
    let said = bytes.strip_prefix(secret)?.strip_prefix(DEGRADED)?;
    let end = said.iter().position(|byte| *byte == b'\n')?;
    let skipped = serde_json::from_slice(&said[..end]).ok()?;
    Some((skipped, bytes.len() - said.len() + end + 1))
}

/// The interpreter's process as the supervisor holds it.
struct Started {
    pid: i32,
    /// Takes the secret and the job; then it is closed.
    job: UnixStream,
    /// What the program reads as its standard input.
    stdin: File,
    result: UnixStream,
    secret: [u8; 32],
    /// When it was given the program.
    at: Instant,
}

impl Started {
    /// Gives the interpreter its program; from here on its time counts.
    fn give(&mut self, program: &Program, setting: &Setting) -> io::Result<()> {
        if let Some(text) = &program.stdin {
            self.stdin.write_all(text.as_bytes())?;
            io::Seek::rewind(&mut self.stdin)?;
        }
        let job = harness_job(program)?;
        self.at = Instant::now();
        self.job.set_write_timeout(Some(setting.limits.wall))?;
        self.job.write_all(&self.secret)?;
        self.job.write_all(&job)?;
        self.job.shutdown(std::net::Shutdown::Write)
    }

    /// Ends an interpreter that was given nothing.
    fn end(&self) {
        // SAFETY: the interpreter is not reaped yet, so the number is its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let _ = wait_for(self.pid);
        end_orphans();
    }
}

fn start(setting: &Setting, own_namespace: bool) -> io::Result<Started> {
    let secret = random_secret()?;
    // Sockets, as the result's: what came through one cannot be read again.
    let (job, job_reader) = UnixStream::pair()?;
    // Both descriptors share their place in the file, which is put back to its start.
    let stdin = memory_file()?;
    let stdin_reader = stdin.try_clone()?;
    // A socket, not a pipe: what was written to a pipe can be read back by opening the descriptor
    // again through `/proc`, which Landlock does not prevent for files without a path.
    let (result, result_writer) = UnixStream::pair()?;
    result.shutdown(std::net::Shutdown::Write)?;
    // SAFETY: this process has one thread.
    match checked(unsafe { libc::fork() })? {
        0 => {
            // SAFETY: a duplicate of the live writer, made to report a failure before the start.
            let report =
                unsafe { libc::fcntl(result_writer.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 10) };
            let descriptors = [
                (OwnedFd::from(stdin_reader), 0),
                (OwnedFd::from(job_reader), JOB_FD),
                (OwnedFd::from(result_writer), RESULT_FD),
            ];
            let tell = Teller { descriptor: report, secret };
            let (layer, why) = become_interpreter(setting, descriptors, own_namespace, &tell);
            tell.say(UNCONFINED, &(layer, why));
            leave();
        }
        pid => {
            drop((job_reader, stdin_reader, result_writer));
            // The output belongs to the interpreter alone: it ends when that does.
            for descriptor in [1, 2] {
                onto(File::options().write(true).open("/dev/null")?.into(), descriptor)?;
            }
            Ok(Started { pid: pid as i32, job, stdin, result, secret, at: Instant::now() })
        }
    }
}

/// What the harness reads: the job's own part.
fn harness_job(program: &Program) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&serde_json::json!({
        "source": program.source,
        "setup": program.setup,
        "checks": program.checks,
        "variable": program.result_variable,
        "answer_bytes": ANSWER_BYTES,
    }))?)
}

fn random_secret() -> io::Result<[u8; 32]> {
    let mut raw = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut raw)?;
    let mut secret = [0u8; 32];
    for (byte, digits) in raw.iter().zip(secret.chunks_exact_mut(2)) {
        let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
        digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    Ok(secret)
}

/// An unnamed, empty file in memory.
fn memory_file() -> io::Result<File> {
    // SAFETY: the name ends in NUL; the result is checked before it is owned.
    let file = checked(unsafe { libc::memfd_create(c"input".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { File::from_raw_fd(file as RawFd) })
}

/// Puts every layer on this process and executes Python; returns only with the layer that failed.
fn become_interpreter(
    setting: &Setting,
    descriptors: [(OwnedFd, RawFd); 3],
    own_namespace: bool,
    tell: &Teller,
) -> (&'static str, String) {
    let told = |layer: &'static str| move |error: io::Error| (layer, error.to_string());
    // A layer that fails ends it, unless it is one that may be left out.
    type Failure = (&'static str, String);
    let may_skip = |failure: &Failure| setting.degraded && failure.0 != "interpreter";
    let skip = |skipped: &mut Vec<Failure>, result: Result<(), Failure>| match result {
        Err(failure) if may_skip(&failure) => {
            skipped.push(failure);
            Ok(())
        }
        result => result,
    };
    let confined = || -> Result<std::convert::Infallible, Failure> {
        let mut skipped = Vec::new();
        leave_session().map_err(told("session"))?;
        std::env::set_current_dir(&setting.work).map_err(told("work folder"))?;
        let command = Command::new(setting).map_err(told("command"))?;
        // SAFETY: takes nothing and cannot fail.
        let pid = unsafe { libc::getpid() } as u32;
        let filters = syscalls::filters(pid, command.path.as_ptr() as usize)
            .map_err(|error| ("seccomp", error.to_string()))?;
        confine::drop_privileges().map_err(told("privileges"))?;
        let interpreter = &setting.interpreter;
        std::fs::metadata(&interpreter.executable)
            .map_err(|error| confine::Unrestricted::unreachable(&interpreter.executable, error))
            .map_err(|error| (error.layer, error.why))?;
        skip(
            &mut skipped,
            confine::restrict_files(&interpreter.read, &interpreter.execute, &setting.work)
                .map_err(|error| (error.layer, error.why)),
        )?;
        arrange(descriptors).map_err(told("descriptors"))?;
        skip(
            &mut skipped,
            confine::set_limits(&setting.limits, own_namespace)
                .and_then(|()| confine::set_memory_limit(&setting.limits))
                .map_err(told("resource limits")),
        )?;
        for filter in &filters {
            let applied = seccompiler::apply_filter(filter);
            skip(&mut skipped, applied.map_err(|error| ("seccomp", error.to_string())))?;
        }
        if !skipped.is_empty() {
            tell.say(DEGRADED, &skipped);
        }
        Err(("interpreter", command.execute().to_string()))
    };
    match confined() {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

/// A session of its own, no signal handled or blocked, gone when the supervisor is.
fn leave_session() -> io::Result<()> {
    // SAFETY: numbers and a live, initialised set of signals.
    unsafe {
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        checked(libc::setsid())?;
        libc::umask(0o077);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        checked(libc::sigemptyset(&mut none))?;
        checked(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())).map(drop)
    }
}

/// Gives the descriptors their numbers and marks all others to be closed by the execution.
fn arrange(descriptors: [(OwnedFd, RawFd); 3]) -> io::Result<()> {
    // First out of the way of each other, then to their places.
    let mut away = Vec::new();
    for (descriptor, number) in descriptors {
        // SAFETY: duplicates a live descriptor; the result is checked before it is owned.
        let moved =
            checked(unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 10) })?;
        // SAFETY: just made, owned by nobody else.
        away.push((unsafe { OwnedFd::from_raw_fd(moved as RawFd) }, number));
    }
    for (descriptor, number) in away {
        onto(descriptor, number)?;
    }
    let first = RESULT_FD as u32 + 1;
    // SAFETY: only marks descriptors; none of them is closed before the execution.
    checked(unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    })
    .map(drop)
}

/// Puts a descriptor at a number of its own, to be inherited.
fn onto(descriptor: OwnedFd, number: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is live; what was at `number` is meant to be replaced.
    checked(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })?;
    if descriptor.as_raw_fd() == number {
        let _ = descriptor.into_raw_fd();
    }
    Ok(())
}

/// The interpreter's path, arguments and environment as the kernel takes them.
struct Command {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Command {
    fn new(setting: &Setting) -> io::Result<Command> {
        let path = confine::path_bytes(&setting.interpreter.executable)?;
        // Isolated by what is given to it: a cleared environment, no user packages, no work folder
        // on the import path (the harness takes it off). `-I` would do that too, but would also
        // ignore the fixed hash seed, without which sets print in another order every time.
        let mut arguments = vec![path.clone()];
        for argument in ["-s", "-B", "-X", "utf8", "-c", HARNESS] {
            arguments.push(CString::new(argument)?);
        }
        let work = setting.work.display();
        let mut environment = Vec::new();
        for variable in [
            "PATH=/usr/bin:/bin".to_owned(),
            "LANG=C.UTF-8".to_owned(),
            "PYTHONHASHSEED=0".to_owned(),
            "PYTHONSAFEPATH=1".to_owned(),
            "OMP_NUM_THREADS=1".to_owned(),
            "OPENBLAS_NUM_THREADS=1".to_owned(),
            "MKL_NUM_THREADS=1".to_owned(),
            "MALLOC_ARENA_MAX=2".to_owned(),
            format!("HOME={work}"),
            format!("TMPDIR={work}"),
        ] {
            environment.push(CString::new(variable)?);
        }
        Ok(Command { path, arguments, environment })
    }

    /// Executes it; comes back only with the error.
    fn execute(&self) -> io::Error {
        let pointers = |strings: &[CString]| {
            let ends = [std::ptr::null()];
            strings.iter().map(|string| string.as_ptr()).chain(ends).collect::<Vec<_>>()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        // SAFETY: strings that end in NUL, in arrays that end in null, all alive during the call.
        unsafe { libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// How the interpreter's process tells the supervisor what became of its layers.
struct Teller {
    descriptor: RawFd,
    secret: [u8; 32],
}

impl Teller {
    fn say(&self, what: &[u8], of: &impl serde::Serialize) {
        let said = serde_json::to_vec(of).unwrap_or_default();
        let message = [&self.secret, what, &said, b"\n"].concat();
        // SAFETY: writes from a live buffer; if that fails there is nobody left to tell.
        unsafe { libc::write(self.descriptor, message.as_ptr().cast(), message.len()) };
    }
}

/// Ends this process at once, without running what belongs to the keeper it was forked from.
fn leave() -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) }
}

/// Watches the interpreter to its end, whoever brings it about.
fn watch(
    started: Started,
    setting: &Setting,
    control: &UnixStream,
) -> io::Result<(Ending, Vec<u8>)> {
    let Started { pid, mut result, secret, at, .. } = started;
    // SAFETY: the child is not reaped yet, so the number is its own; checked before it is owned.
    let handle = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: just made, owned by nobody else.
    let handle = unsafe { OwnedFd::from_raw_fd(handle as RawFd) };
    let threads = ThreadCount::of(&handle);
    let mut bytes = Vec::new();
    let mut open = true;
    let mut stopped = None;
    while stopped.is_none() {
        let left = setting.limits.wall.saturating_sub(at.elapsed());
        let [over, said, gone] = wait_on(
            [
                (handle.as_raw_fd(), libc::POLLIN),
                (if open { result.as_raw_fd() } else { -1 }, libc::POLLIN),
                (control.as_raw_fd(), libc::POLLRDHUP),
            ],
            left.min(WATCH),
        )?;
        if said {
            open = read_some(&mut result, &mut bytes)?;
        }
        if over {
            break;
        } else if gone {
            stopped = Some(Stop::Abandoned);
        } else if at.elapsed() >= setting.limits.wall {
            stopped = Some(Stop::Wall);
        } else if threads.now() > THREADS {
            stopped = Some(Stop::Threads);
        }
    }
    // SAFETY: the interpreter leads its group and is not reaped yet, so the number is its own.
    unsafe {
        libc::kill(-pid, libc::SIGKILL);
        libc::kill(pid, libc::SIGKILL);
    }
    let (status, cpu_seconds) = wait_for(pid)?;
    let wall_seconds = at.elapsed().as_secs_f64();
    end_orphans();
    while open {
        open = read_some(&mut result, &mut bytes)?;
    }
    let exit = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    let signal = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
    let told = degraded(&bytes, &secret).map_or(0, |(_, end)| end);
    let channel = Channel::read(&bytes[told..], &secret);
    Ok((Ending { exit, signal, stopped, cpu_seconds, wall_seconds, channel }, bytes))
}

/// Reads what is there; whether more may come. What is beyond any result is counted as one byte
/// too many, which makes it none.
fn read_some(from: &mut UnixStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut part = [0; 1 << 16];
    match from.read(&mut part) {
        Ok(0) => Ok(false),
        Ok(count) => {
            let room = (RESULT_BYTES + 1).saturating_sub(bytes.len());
            bytes.extend_from_slice(&part[..count.min(room)]);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(error),
    }
}

/// Waits until one of the descriptors has what it is asked for, or ends; which of them do.
fn wait_on<const N: usize>(on: [(RawFd, i16); N], at_most: Duration) -> io::Result<[bool; N]> {
    let mut polled = on.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    let milliseconds = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
    // SAFETY: the array is live and its length is given.
    match checked(unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(polled.map(|descriptor| descriptor.revents != 0)),
    }
}

/// Waits for a child's end: its status and the processor time it took, in seconds.
fn wait_for(pid: i32) -> io::Result<(i32, f64)> {
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the pointers are to live variables of the right types.
        match checked(unsafe { libc::wait4(pid, &mut status, 0, &mut usage) }) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    Ok((status, seconds(usage.ru_utime) + seconds(usage.ru_stime)))
}

/// Ends whatever the interpreter might have left behind: as their reaper the supervisor has every
/// orphan as its child. (None is expected, since no process can be made inside.)
fn end_orphans() {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::getpid() } == 1 {
        // The first process of a namespace takes all others with it.
        return;
    }
    loop {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        let children: Vec<i32> =
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        for child in &children {
            // SAFETY: numbers only; a child that is not reaped keeps its number.
            unsafe { libc::kill(*child, libc::SIGKILL) };
        }
        let options = if children.is_empty() { libc::WNOHANG } else { 0 };
        // SAFETY: no status is asked for.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), options) } <= 0 {
            return;
        }
    }
}

/// Counts the threads of a process, where `/proc` tells.
struct ThreadCount {
    path: Option<String>,
}

impl ThreadCount {
    /// `/proc` may belong to an outer namespace, in which the process has another number.
    fn of(handle: &OwnedFd) -> ThreadCount {
        let about = format!("/proc/thread-self/fdinfo/{}", handle.as_raw_fd());
        let about = std::fs::read_to_string(about).unwrap_or_default();
        let pid = about.lines().find_map(|line| line.strip_prefix("Pid:")).map(str::trim);
        ThreadCount { path: pid.filter(|pid| *pid != "0").map(|pid| format!("/proc/{pid}/stat")) }
    }

    fn now(&self) -> u64 {
        let stat = self.path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        // The name, in parentheses, may hold anything; 18 fields on is the count.
        let after_name =
            stat.as_deref().and_then(|stat| stat.rsplit_once(") ")).map(|(_, rest)| rest);
        after_name.and_then(|rest| rest.split(' ').nth(17)?.parse().ok()).unwrap_or(0)
    }
}
