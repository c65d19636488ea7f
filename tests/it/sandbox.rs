//! The sandbox: hostile programs end in their stated outcome with the host unharmed, right ones
//! run. Every program here runs in the sandbox and nowhere else.

mod believed;
mod closed;
mod limits;
mod parent;
mod right;
mod standing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use unsay::program::sandbox::{Limits, Options, Outcome, Program, Run, Sandbox, SandboxError};

/// A sandbox with a folder of its own for work folders, beside which lies what programs must not
/// reach. Dropping it checks that no run left anything behind.
struct Ground {
    sandbox: Sandbox,
    root: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        std::fs::write(root.path().join("private"), "untouched").unwrap();
        let sandbox = Sandbox::find(options(root.path())).unwrap();
        Ground { sandbox, root }
    }

    /// A file outside the work folder, which holds `untouched`.
    fn private(&self) -> PathBuf {
        self.root.path().join("private")
    }

    async fn run_with(&self, program: &Program, limits: &Limits) -> Run {
        self.sandbox.run(program, limits).await.unwrap()
    }

    async fn run(&self, source: &str) -> Run {
        let source = source.replace("PRIVATE", &self.private().display().to_string());
        let run = self.run_with(&Program::with_answer(source, "ans"), &limits()).await;
        self.check_host();
        run
    }

    async fn outcome(&self, source: &str) -> Outcome {
        self.run(source).await.outcome
    }

    async fn answer(&self, source: &str) -> String {
        let run = self.run(source).await;
        match run.outcome {
            Outcome::Finished { answer: Some(answer) } => answer,
            outcome => panic!("{outcome:?}\n{}", run.stderr),
        }
    }

    /// The program is refused something and ends by that; what it was.
    async fn denied(&self, source: &str) -> String {
        match self.run(source).await {
            Run { outcome: Outcome::Denied { what }, .. } => what,
            run => panic!("{run:?}"),
        }
    }

    fn check_host(&self) {
        assert_eq!(std::fs::read_to_string(self.private()).unwrap(), "untouched");
        let left: Vec<_> = std::fs::read_dir(self.root.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 2, "a run left something behind: {left:?}");
        assert_eq!(std::fs::read_dir(self.root.path().join("work")).unwrap().count(), 0);
        assert_eq!(processes_of(self.root.path()), Vec::<u32>::new());
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check_host();
        }
    }
}

fn options(root: &Path) -> Options {
    Options {
        child: PathBuf::from(env!("CARGO_BIN_EXE_unsay")),
        work_root: root.join("work"),
        // What a run leaves behind could not be told from what stands ready for the next.
        standing: 0,
        ..Options::default()
    }
}

/// The default limits, with a processor limit that endless programs reach soon.
fn limits() -> Limits {
    Limits { cpu: Duration::from_secs(10), ..Limits::default() }
}

/// The processes, other than this one, whose command line or environment names `root`: every
/// process of a run does.
fn processes_of(root: &Path) -> Vec<u32> {
    let name = root.file_name().unwrap().as_encoded_bytes();
    let names = |path: PathBuf| {
        std::fs::read(path).is_ok_and(|text| text.windows(name.len()).any(|part| part == name))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let process = PathBuf::from(format!("/proc/{pid}"));
            names(process.join("cmdline")) || names(process.join("environ"))
        })
        .collect()
}

fn raised(kind: &str, message: &str, line: usize) -> Outcome {
    Outcome::Raised { kind: kind.to_owned(), message: message.to_owned(), line: Some(line) }
}

fn finished(answer: &str) -> Outcome {
    Outcome::Finished { answer: Some(answer.to_owned()) }
}
