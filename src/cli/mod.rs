//! The command line: one of the two front doors. Every subcommand is a small function that opens
//! what it needs, asks the rooms below, and prints; errors name the thing, say why, and what to do.

mod arguments;
mod doctor;
mod eval;
mod failure;
mod grade;
mod host;
mod inspect;
mod live;
mod models;
mod output;
mod planned;
mod prompts;
mod recommend;
mod setup;
mod solve;
mod tasks;
mod trace_file;

use std::process::ExitCode;

use clap::Parser;

use crate::program::sandbox;
use arguments::{Arguments, ColorChoice, Command};
use failure::Failure;
use output::note;

/// Runs the command named on the command line and says how it ended (exit codes: 0 an answer or a
/// finished run, 1 a stated failure, 2 bad usage or input, 3 something missing on the machine).
pub fn main() -> ExitCode {
    // The sandbox's child is this binary again, under a name that no user types.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|first| first == sandbox::CHILD_ARGUMENT) {
        return sandbox::child_main(words);
    }
    let ended = planned::expanded(std::env::args_os().collect()).and_then(|words| {
        let arguments = Arguments::parse_from(words);
        set_colors(arguments.color);
        run(arguments.command)
    });
    match ended {
        Ok(code) => code,
        Err(failure) => {
            if !failure.is_quiet() {
                note!("{failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Solve(args) => solve::solve(&args),
        Command::Eval(args) => eval::eval(&args),
        Command::Resume(args) => eval::resume(&args),
        Command::Report(args) => eval::report(&args),
        Command::Trace(args) => eval::trace(&args),
        Command::Models => models::list(),
        Command::Pull(args) => models::pull(&args),
        Command::Methods => solve::list_methods(),
        Command::Tasks(args) => tasks::tasks(&args),
        Command::Grade(args) => grade::grade(&args),
        Command::Units(args) => inspect::units(&args),
        Command::Tokenize(args) => inspect::tokenize(&args),
        Command::Generate(args) => inspect::generate(&args),
        Command::Score(args) => inspect::score(&args),
        Command::Replay(args) => inspect::replay(&args),
        Command::Prompts(args) => prompts::run(&args),
        Command::Setup(args) => setup::setup(&args),
        Command::Doctor(args) => doctor::doctor(&args),
    }
}

fn set_colors(choice: ColorChoice) {
    match choice {
        ColorChoice::Auto => {}
        ColorChoice::Always => console::set_colors_enabled(true),
        ColorChoice::Never => console::set_colors_enabled(false),
    }
}

/// Runs a future to its end on a runtime of this thread's.
fn wait<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::missing(format!("cannot start the asynchronous runtime: {e}")))?;
    Ok(runtime.block_on(future))
}
