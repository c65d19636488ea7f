//! `unsay eval`, `resume`, `report` and `trace`: many items, kept in a journal.

mod meter;
mod task;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::arguments::{
    EvalArgs, ModelArgs, ReportArgs, ResumeArgs, RunArgs, ThinkingArg, ThinkingArgs, TraceArgs,
};
use super::failure::{Failure, chain};
use super::live::Live;
use super::output::{note, say};
use super::solve::check_drawing;
use super::{host, output, prompts, setup, wait};
use crate::llm::{Event, Prompts, SilentSink, Sink};
use crate::methods::{self, Context, Method};
use crate::runs::{
    Judge, Key, MethodPlan, Plan, PlanError, Record, Report, Run, RunError, RunOptions, SCHEMA,
    Work, read_trace, trace_path,
};
use crate::store;
use meter::Meter;
use task::Items;

/// `unsay eval`
pub fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    check_drawing(args.temperature, args.max_tokens)?;
    let last = args.seeds.checked_sub(1).and_then(|n| args.first_seed.checked_add(n));
    let last = last.ok_or_else(|| {
        Failure::usage(format!("there are not {} seeds from {} on", args.seeds, args.first_seed))
    })?;
    let items = Items::select(args)?;
    let methods = args
        .methods
        .iter()
        .map(|text| {
            MethodPlan::read(text).ok_or_else(|| {
                Failure::usage(format!("`{text}` is no method"))
                    .hint("write NAME or NAME:OPTION=VALUE, several divided by commas")
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let templates = prompts::open(args.prompts.as_deref())?;
    let plan = Plan {
        schema: SCHEMA,
        task: items.task.clone(),
        data: items.data.clone(),
        data_digest: items.data_digest.clone(),
        whole: items.whole,
        items: items.problems.iter().map(|problem| problem.id.clone()).collect(),
        methods,
        model: args.model.model.clone(),
        model_digest: host::digest(&args.model)?,
        quantise: args.model.quantise.map(|kind| host::quantise_name(kind).to_owned()),
        adapter: args.model.adapter.as_deref().map(absolute).transpose()?,
        merge: args.model.merge,
        thinking: args.thinking.thinking.map(|thinking| thinking == ThinkingArg::On),
        thinking_budget: args.thinking.thinking_budget,
        kv: host::kv(&args.model).to_owned(),
        context: args.model.context,
        prompts_digest: digest_of(&templates)?,
        prompts: args.prompts.clone(),
        seeds: (args.first_seed..=last).collect(),
        temperature: args.temperature,
        max_tokens: args.max_tokens,
    };
    plan.check()?;
    let built = build(&plan)?;
    for problem in &items.problems {
        if let Some(method) = built.iter().find(|method| !method.solves(problem.kind)) {
            return Err(Failure::usage(format!(
                "{} cannot answer {}, whose answers are whole replies",
                method.name(),
                items.task
            ))
            .hint("`direct` can"));
        }
    }
    if args.dry_run {
        return dry_run(args, &plan, &built);
    }
    carry_out(&args.out, plan, &items, &built, templates, &args.model, &args.run)
}

/// `unsay resume DIR`
pub fn resume(args: &ResumeArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::of(&args.folder)?;
    let model = ModelArgs {
        model: plan.model.clone(),
        context: plan.context,
        kv: host::kv_of(&plan.kv).ok_or_else(|| {
            Failure::usage(format!("the plan's kv type is `{}`, which is not known", plan.kv))
        })?,
        threads: args.threads,
        memory: args.memory,
        pages_memory: args.pages_memory,
        no_prefix_cache: false,
        quantise: plan.quantise.as_deref().map(quantise_of).transpose()?,
        adapter: plan.adapter.clone(),
        merge: plan.merge,
        engine_log: None,
    };
    let digest = host::digest(&model)?;
    if digest != plan.model_digest {
        let beside = if plan.adapter.is_some() { " or of its adapter" } else { "" };
        let what = format!("the files of {}{beside}", plan.model);
        return Err(task::changed(&what, &plan.model_digest, &digest));
    }
    let templates = prompts::open(plan.prompts.as_deref())?;
    let prompts_digest = digest_of(&templates)?;
    if prompts_digest != plan.prompts_digest {
        return Err(task::changed("the prompt templates", &plan.prompts_digest, &prompts_digest));
    }
    let items = Items::of_plan(&plan)?;
    let built = build(&plan)?;
    carry_out(&args.folder, plan, &items, &built, templates, &model, &args.run)
}

fn quantise_of(name: &str) -> Result<super::arguments::QuantiseArg, Failure> {
    host::quantise_of(name).ok_or_else(|| {
        Failure::usage(format!("the plan quantises to `{name}`, which is not known"))
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path)
        .map_err(|e| Failure::usage(format!("cannot read {}: {e}", path.display())))
}

/// `unsay report DIR`
pub fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::of(&args.folder)?;
    let found = crate::journal::read(&args.folder.join("journal.jsonl"))
        .map_err(|e| Failure::usage(chain(&e)))?;
    let report = Report::of(&plan, finished(&found.lines).values().copied());
    if args.json {
        super::inspect::print_json(&report)?;
    } else if args.csv {
        output::text(&report.csv())?;
    } else {
        output::text(&report.markdown())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of a journal by their keys: who wrote a line twice is counted once.
fn finished(lines: &[Record]) -> BTreeMap<&Key, &Record> {
    let mut finished = BTreeMap::new();
    for record in lines {
        finished.entry(&record.key).or_insert(record);
    }
    finished
}

/// `unsay trace DIR ITEM`
pub fn trace(args: &TraceArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::of(&args.folder)?;
    if !plan.items.contains(&args.item) {
        return Err(Failure::usage(format!("the run has no item `{}`", args.item)).hint(format!(
            "it has {} items, from `{}` on",
            plan.items.len(),
            plan.items[0]
        )));
    }
    let known = plan.methods.iter().map(MethodPlan::label).collect::<Vec<_>>();
    if let Some(method) = args.method.as_ref().filter(|method| !known.contains(method)) {
        let hint = format!("its methods are {}", known.join(", "));
        return Err(Failure::usage(format!("the run has no method `{method}`")).hint(hint));
    }
    if let Some(seed) = args.seed.filter(|seed| !plan.seeds.contains(seed)) {
        let hint = format!("its seeds are {:?}", plan.seeds);
        return Err(Failure::usage(format!("the run has no seed {seed}")).hint(hint));
    }
    let found = crate::journal::read::<Record>(&args.folder.join("journal.jsonl"))
        .map_err(|e| Failure::usage(chain(&e)))?;
    let of_item = |record: &&Record| {
        record.key.item == args.item
            && args.method.as_ref().is_none_or(|method| record.key.method == *method)
            && args.seed.is_none_or(|seed| record.key.seed == seed)
    };
    let records: Vec<_> = finished(&found.lines).into_values().filter(of_item).collect();
    if records.is_empty() {
        return Err(Failure::stated(format!("`{}` is not finished yet", args.item)));
    }
    let live = Live::new(Box::new(std::io::stdout()), false, args.verbose);
    for record in records {
        let path = trace_path(&args.folder, &record.key);
        let events = read_trace(&path).map_err(|e| {
            Failure::usage(format!("cannot read the trace {}: {e}", path.display()))
                .hint("a run that was begun with --no-traces keeps none")
        })?;
        for event in events {
            let event: Event = serde_json::from_value(event).map_err(|e| {
                Failure::usage(format!("the trace {} is damaged: {e}", path.display()))
            })?;
            live.event(&event);
        }
        say!("{}\n", told(record));
    }
    match live.error() {
        Some(error) => Err(output::failed(&error)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// How a record ended, in a line.
fn told(record: &Record) -> String {
    use crate::runs::{Ended, Verdict};
    let ended = match &record.ended {
        Ended::Answered { verdict: Verdict::Right, rule, .. } => format!("right ({rule})"),
        Ended::Answered { verdict: Verdict::Wrong, rule, .. } => format!("wrong ({rule})"),
        Ended::Answered { verdict: Verdict::Undecided, rule, .. } => format!("undecided ({rule})"),
        Ended::Failed { .. } => "failed".to_owned(),
    };
    format!("{} · {} · seed {}: {ended}", record.key.item, record.row, record.key.seed)
}

fn build(plan: &Plan) -> Result<Vec<Arc<dyn Method>>, Failure> {
    plan.methods
        .iter()
        .map(|method| {
            methods::by_name(&method.name, &method.options)
                .map(Arc::from)
                .map_err(|e| Failure::usage(chain(&e)))
        })
        .collect()
}

fn digest_of(templates: &Prompts) -> Result<String, Failure> {
    let mut all = String::new();
    for name in templates.names() {
        let source = templates.source(name).map_err(|e| Failure::stated(chain(&e)))?;
        all.push_str(&format!("{name} {}\n{source}\n", source.len()));
    }
    Ok(store::sha256_of_text(&all))
}

fn dry_run(args: &EvalArgs, plan: &Plan, methods: &[Arc<dyn Method>]) -> Result<ExitCode, Failure> {
    let names: Vec<String> = methods.iter().map(|method| method.name()).collect();
    say!("task     {} from {}", plan.task, plan.data.display());
    say!(
        "items    {}, from {} to {}",
        plan.items.len(),
        plan.items[0],
        plan.items[plan.items.len() - 1]
    );
    say!("methods  {}", names.join(", "));
    say!("seeds    {:?}", plan.seeds);
    say!("model    {} (SHA-256 {})", plan.model, plan.model_digest);
    say!("memory   {}", host::plan_line(&args.model)?);
    say!(
        "in all   {} to run, {} at a time, into {}",
        plan.jobs(),
        args.run.at_once,
        args.out.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn carry_out(
    folder: &Path,
    plan: Plan,
    items: &Items,
    methods: &[Arc<dyn Method>],
    templates: Prompts,
    model: &ModelArgs,
    options: &RunArgs,
) -> Result<ExitCode, Failure> {
    let mut run = Run::open(folder, plan)?;
    if run.healed > 0 {
        note!(
            "the last line of the journal was not finished; its {} bytes are cut off",
            run.healed
        );
    }
    if run.finished() < run.plan().jobs() {
        let sandbox = Arc::new(setup::sandbox(&options.sandbox)?);
        let thinking = ThinkingArgs {
            thinking: run.plan().thinking.map(|on| match on {
                true => ThinkingArg::On,
                false => ThinkingArg::Off,
            }),
            thinking_budget: run.plan().thinking_budget,
        };
        let hosted = host::host_thinking(model, thinking, host::Tell::Line)?;
        let context = Context {
            llm: Arc::new(hosted.llm()?),
            sandbox: sandbox.clone(),
            prompts: Arc::new(templates),
            sink: Arc::new(SilentSink),
            seed: 0,
            sample: 0,
            temperature: run.plan().temperature,
            max_tokens: run.plan().max_tokens,
        };
        let judge: Arc<dyn Judge> = items.judge(sandbox);
        let mut meter = Meter::new(run.plan(), run.records());
        note!(
            "{} of {} are finished; stop it at any time, `unsay resume {}` goes on",
            run.finished(),
            run.plan().jobs(),
            folder.display()
        );
        let work = Work { problems: &items.problems, methods, context: &context, judge: &judge };
        let how = RunOptions { at_once: options.at_once, traces: !options.no_traces };
        let engine = hosted.engine.clone();
        let healthy = async move || engine.check().await.map_err(|error| error.to_string());
        let ended = wait(run.go(&work, how, healthy, &mut |progress| meter.tell(&progress)))?;
        meter.finish();
        ended?;
        wait(hosted.engine.check())??;
    }
    let report = Report::of(run.plan(), run.records());
    for (name, text) in [("report.md", report.markdown()), ("report.csv", report.csv())] {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(|e| Failure::stated(format!("cannot write {}: {e}", path.display())))?;
    }
    output::text(&report.markdown())?;
    Ok(ExitCode::SUCCESS)
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Failure::usage(chain(&error))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let message = chain(&error);
        match &error {
            RunError::Plan(_) | RunError::Foreign { .. } | RunError::Lost { .. } => {
                Failure::usage(message)
            }
            RunError::Journal(crate::journal::JournalError::Io { .. }) => Failure::stated(message),
            RunError::Journal(_) => Failure::usage(message),
            _ if error.is_missing_on_machine() => Failure::missing(message),
            _ => Failure::stated(message),
        }
    }
}
