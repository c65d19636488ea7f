//! `unsay setup`: a private Python environment with the packages that programs of some methods import,
//! made once in the cache folder and used by the sandbox from then on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::arguments::{SandboxArgs, SetupArgs};
use super::failure::{Failure, chain};
use super::output::{note, say};
use super::wait;
use crate::program::sandbox::{Limits, Options, Outcome, Program, Sandbox};
use crate::store::Cache;

/// What is installed, as pip takes it: Z3's bindings, numpy, and a constraint solver (the maintained
/// successor of `python-constraint`, imported as `constraint`).
const PACKAGES: [&str; 3] = ["z3-solver==5.4.1.0", "numpy>=1.26,<3", "python-constraint2>=2.2,<3"];

/// A program that needs all of them; it answers with their versions.
const TRIAL: &str = r#"
from importlib.metadata import version
import constraint, numpy, z3
n = z3.Int("n")
solver = z3.Solver()
solver.add(n * n == 49, n > 0)
assert solver.check() == z3.sat and solver.model()[n].as_long() == 7
problem = constraint.Problem()
problem.addVariables(["a", "b"], range(1, 5))
problem.addConstraint(lambda a, b: a * b == 12 and a < b, ["a", "b"])
assert problem.getSolutions() == [{"a": 3, "b": 4}]
assert int(numpy.linalg.det(numpy.array([[3, 1], [1, 5]])).__round__()) == 14
versions = ", ".join(f"{name} {version(name)}" for name in ("z3-solver", "numpy", "python-constraint2"))
"#;

/// Written last: an environment without it was not finished and is made anew.
const READY: &str = "unsay-ready";

/// The sandbox's options as the command line asks for them: the named interpreter, else the private
/// environment's where there is one, else the first usable one on the path.
pub fn sandbox_options(args: &SandboxArgs) -> Result<Options, Failure> {
    let python = match &args.python {
        Some(python) => Some(python.clone()),
        None => environment(&Cache::locate()?),
    };
    Ok(Options { python, degraded: args.sandbox_degraded, ..Options::default() })
}

/// Tries the sandbox out, and says what it lacks where it is used without.
pub fn sandbox(args: &SandboxArgs) -> Result<Sandbox, Failure> {
    let sandbox = Sandbox::find(sandbox_options(args)?)?;
    for layer in sandbox.layers().iter().filter(|layer| layer.required && !layer.is_active()) {
        note!("warning: programs run WITHOUT the sandbox's layer `{}`", layer.name);
    }
    if let Some(leaks) = sandbox.leaks() {
        note!("warning: a program that the model writes can do this here: {leaks}");
    }
    Ok(sandbox)
}

/// The interpreter of the private environment, if that was set up.
fn environment(cache: &Cache) -> Option<PathBuf> {
    packages(cache).map(|_| python_of(&folder(cache)))
}

/// The packages of the private environment with their versions, if that was set up and its interpreter
/// is still there.
pub fn packages(cache: &Cache) -> Option<String> {
    let folder = folder(cache);
    let versions = std::fs::read_to_string(folder.join(READY)).ok()?;
    python_of(&folder).exists().then_some(versions)
}

fn folder(cache: &Cache) -> PathBuf {
    cache.root().join("python")
}

fn python_of(folder: &Path) -> PathBuf {
    folder.join("bin").join("python3")
}

/// Makes the environment, or says that it is there.
pub fn setup(args: &SetupArgs) -> Result<ExitCode, Failure> {
    let cache = Cache::locate()?;
    let folder = folder(&cache);
    let unwritable =
        |e: std::io::Error| Failure::missing(format!("cannot write {}: {e}", folder.display()));
    std::fs::create_dir_all(cache.root()).map_err(unwritable)?;
    // One at a time; the system frees the lock when a process dies.
    let lock = File::create(cache.root().join(".python.lock")).map_err(unwritable)?;
    if lock.try_lock().is_err() {
        note!("another `unsay setup` is at work; waiting for it");
        lock.lock().map_err(unwritable)?;
    }
    if args.again || environment(&cache).is_none() {
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(unwritable)?;
        }
        let base = match &args.python {
            Some(python) => python.clone(),
            // What the sandbox takes can make an environment for it.
            None => Sandbox::find(Options::default())?.interpreter().executable.clone(),
        };
        install(&base, &folder)?;
        let versions = tried(&folder)?;
        std::fs::write(folder.join(READY), &versions).map_err(unwritable)?;
    }
    say!("{}: {}", python_of(&folder).display(), packages(&cache).unwrap_or_default());
    Ok(ExitCode::SUCCESS)
}

fn install(base: &Path, folder: &Path) -> Result<(), Failure> {
    note!("making an environment of {} in {}", base.display(), folder.display());
    let mut make = Command::new(base);
    make.args(["-m", "venv"]).arg(folder);
    run(
        make,
        "on Debian and Ubuntu `apt install python3-venv` brings what is missing; --python names another Python",
    )?;
    note!("installing {} (some 60 MB from PyPI)", PACKAGES.join(", "));
    let mut install = Command::new(python_of(folder));
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--only-binary", ":all:"])
        .args(PACKAGES);
    run(
        install,
        "PyPI must be reachable, or name a mirror in PIP_INDEX_URL; nothing that was there is lost: run `unsay setup` again",
    )
}

/// Runs a command to its end, its words passed on as ours of standard error.
fn run(mut command: Command, hint: &str) -> Result<(), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let arguments: Vec<_> =
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let shown = format!("{name} {}", arguments.join(" "));
    let ended = command.stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr())).status();
    let failed = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("`{shown}` failed ({status})"),
        Err(error) => format!("`{shown}` could not be started: {error}"),
    };
    Err(Failure::missing(failed).hint(hint))
}

/// Whether the packages work where programs will import them; their versions.
fn tried(folder: &Path) -> Result<String, Failure> {
    let options = Options { python: Some(python_of(folder)), standing: 0, ..Options::default() };
    let sandbox = Sandbox::find(options)?;
    let program = Program::with_answer(TRIAL, "versions");
    let run = wait(sandbox.run(&program, &Limits::default()))?.map_err(|e| {
        Failure::missing(format!("the packages cannot be tried out: {}", chain(&e)))
    })?;
    match run.outcome {
        Outcome::Finished { answer: Some(versions) } => Ok(versions),
        outcome => Err(Failure::missing(format!(
            "the packages are installed but do not work in the sandbox: {outcome} {}",
            run.stderr.trim_end()
        ))),
    }
}
