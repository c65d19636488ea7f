//! `unsay solve`: one question, one method, live.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::arguments::SolveArgs;
use super::failure::{Failure, chain};
use super::inspect::{print_json, read_text, without_mark};
use super::live::Live;
use super::output::{note, say};
use super::trace_file::TraceFile;
use super::{host, output, prompts, setup, trace_file, wait};
use crate::answer::{Kind, Problem};
use crate::llm::{Event, Sink};
use crate::methods::{self, Context, Method, Outcome, Status};
use crate::program::sandbox::SandboxError;

/// Solves the question and tells how it went.
pub fn solve(args: &SolveArgs) -> Result<ExitCode, Failure> {
    let method = method(args)?;
    let problem = problem(args)?;
    let templates = prompts::open(args.prompts.as_deref())?;
    if let Some(path) = args.trace.as_deref().filter(|path| path.exists()) {
        return Err(trace_file::exists(path));
    }
    let sandbox = setup::sandbox(&args.sandbox)?;
    let tell = match (args.json, args.verbose) {
        (true, _) => host::Tell::Nothing,
        (false, true) => host::Tell::Table,
        (false, false) => host::Tell::Line,
    };
    let host = host::host_thinking(&args.model, args.thinking, tell)?;
    let llm = host.llm()?;
    // Made only now, so that a failed start leaves no empty trace behind.
    let trace = args.trace.as_deref().map(TraceFile::create).transpose()?.map(Arc::new);

    let mut sinks: Vec<Arc<dyn Sink>> = Vec::new();
    let out = std::io::stdout();
    let streaming = out.is_terminal();
    let live = Arc::new(Live::new(Box::new(out), streaming, args.verbose));
    if !args.json {
        sinks.push(Arc::clone(&live) as Arc<dyn Sink>);
        note!("{} {}, {} threads; method {}", host.name, host.loaded, host.threads, method.name());
    }
    if let Some(trace) = &trace {
        sinks.push(Arc::clone(trace) as Arc<dyn Sink>);
    }
    let context = Context {
        llm: Arc::new(llm),
        sandbox: Arc::new(sandbox),
        prompts: Arc::new(templates),
        sink: Arc::new(Fan(sinks)),
        seed: args.seed,
        sample: 0,
        temperature: args.temperature,
        max_tokens: args.max_tokens,
    };
    let begun = Instant::now();
    let solving = async {
        tokio::select! {
            outcome = method.solve(&problem, &context) => Some(outcome),
            // Nobody reads on and nothing is kept: computing to the end would be for nobody.
            () = live.lost(), if trace.is_none() => None,
        }
    };
    let outcome = wait(solving)?;
    let unread = live.error().map(|error| output::failed(&error));
    let Some(outcome) = outcome else {
        return Err(unread.unwrap_or_else(Failure::quiet));
    };
    let seconds = begun.elapsed().as_secs_f64();
    wait(host.engine.check())??;
    if let Some(trace) = &trace {
        trace.finish()?;
    }
    if let Some(failure) = unread {
        return Err(failure);
    }
    if args.json {
        report(&*method, &host, &problem, &outcome, seconds)?;
    }
    Ok(match outcome.status {
        Status::Answered { .. } => ExitCode::SUCCESS,
        Status::Failed { .. } if args.demo => ExitCode::SUCCESS,
        Status::Failed { .. } => ExitCode::from(1),
    })
}

/// `unsay methods`
pub fn list_methods() -> Result<ExitCode, Failure> {
    for method in methods::list() {
        say!("{}  {} ({})", method.name, method.summary, method.source);
        for option in method.options {
            say!(
                "    -o {}=…  {}; {} [default: {}]",
                option.name,
                option.summary,
                option.values,
                option.default
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses settings with which no reply can be drawn.
pub fn check_drawing(temperature: Option<f32>, max_tokens: Option<usize>) -> Result<(), Failure> {
    if let Some(t) = temperature
        && !(t.is_finite() && t >= 0.0)
    {
        return Err(Failure::usage(format!("--temperature is {t}; it must be 0 or more")));
    }
    if max_tokens == Some(0) {
        return Err(Failure::usage("--max-tokens is 0; it must be at least 1"));
    }
    Ok(())
}

fn method(args: &SolveArgs) -> Result<Box<dyn Method>, Failure> {
    let mut options = Vec::new();
    for pair in &args.options {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            Failure::usage(format!("`{pair}` is not NAME=VALUE"))
                .hint("`unsay methods` lists the options of each method")
        })?;
        options.push((name.to_owned(), value.to_owned()));
    }
    check_drawing(args.temperature, args.max_tokens)?;
    methods::by_name(&args.method, &options).map_err(|e| Failure::usage(chain(&e)))
}

fn problem(args: &SolveArgs) -> Result<Problem, Failure> {
    let question = match (&args.question, &args.file) {
        (Some(question), _) => question.clone(),
        (None, Some(file)) => read_text(file)?,
        (None, None) => from_standard_input()?,
    };
    let question = question.trim().to_owned();
    if question.is_empty() {
        return Err(Failure::usage("the question is empty")
            .hint("give it as an argument, with --file FILE, or on standard input"));
    }
    if let Some(name) = args.entry_point.as_deref().filter(|name| !is_identifier(name)) {
        return Err(Failure::usage(format!(
            "--entry-point is `{name}`, which no function is called"
        ))
        .hint("it must be a name as Python takes it: letters, digits and _, no digit first"));
    }
    let kind = if args.entry_point.is_some() { Kind::Code } else { Kind::Math };
    Ok(Problem {
        id: "question".to_owned(),
        question,
        kind,
        entry_point: args.entry_point.clone(),
        public_checks: Vec::new(),
    })
}

/// Whether Python takes this as a name; its keywords are left to it.
fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && characters.all(|c| c.is_alphanumeric() || c == '_')
}

fn from_standard_input() -> Result<String, Failure> {
    if std::io::stdin().is_terminal() {
        note!("the question (end with Ctrl-D):");
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| Failure::usage(format!("cannot read the question: {e}")))?;
    Ok(without_mark(text))
}

fn report(
    method: &dyn Method,
    host: &host::Host,
    problem: &Problem,
    outcome: &Outcome,
    seconds: f64,
) -> Result<(), Failure> {
    let mut object = serde_json::to_value(outcome)
        .map_err(|e| Failure::stated(format!("cannot write JSON: {e}")))?;
    let mut report = json!({
        "schema": 1,
        "method": method.name(),
        "model": host.name,
        "question": problem.question,
        "seconds": seconds,
        "memory": host.plan(),
    });
    if let (Some(report), Some(object)) = (report.as_object_mut(), object.as_object_mut()) {
        report.append(object);
    }
    print_json(&report)
}

/// Sends each event to several sinks.
struct Fan(Vec<Arc<dyn Sink>>);

impl Sink for Fan {
    fn event(&self, event: &Event) {
        for sink in &self.0 {
            sink.event(event);
        }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        let message = chain(&error);
        if error.is_missing_on_machine() {
            Failure::missing(message).hint("`unsay doctor` shows what the sandbox needs")
        } else {
            Failure::stated(message)
        }
    }
}
