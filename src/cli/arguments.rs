//! What the command line takes.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::engine::plan::MemorySize;

/// The model where none is named.
pub const DEFAULT_MODEL: &str = "smollm2-135m-instruct";

/// A local inference engine on which language models correct themselves, offline.
#[derive(Parser)]
#[command(name = "unsay", version, about, max_term_width = 100)]
pub struct Arguments {
    /// Colours in the terminal.
    #[arg(long, global = true, value_enum, default_value_t)]
    pub color: ColorChoice,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Subcommand)]
pub enum Command {
    /// Solve one question with a self-correction method, live, with the exact cost
    Solve(SolveArgs),
    /// Run methods on many questions of a task, kept in a folder that goes on after a stop
    Eval(EvalArgs),
    /// Go on with a run that was stopped
    Resume(ResumeArgs),
    /// Show the tables of a run
    Report(ReportArgs),
    /// Show what happened to one item of a run
    Trace(TraceArgs),
    /// List the models that are known, and which of them are here
    Models,
    /// Fetch a model into the cache folder, its digests checked
    Pull(PullArgs),
    /// List the methods
    Methods,
    /// List the tasks, and which of their data are here; or show items of one
    Tasks(TasksArgs),
    /// Judge stored replies: one JSON object a line with verdict and rule
    Grade(GradeArgs),
    /// Show the logic units of a Python program
    Units(UnitsArgs),
    /// Show the token ids of a text
    Tokenize(TokenizeArgs),
    /// Continue a text as it is (no chat template)
    Generate(GenerateArgs),
    /// Show the log-probability of each token of a continuation
    Score(ScoreArgs),
    /// Run an engine's log again, and tell where it goes another way
    Replay(ReplayArgs),
    /// Export the prompt templates, or render one
    Prompts(PromptsArgs),
    /// Make a private Python environment with z3-solver, numpy and python-constraint for programs
    Setup(SetupArgs),
    /// Say what this machine has and lacks
    Doctor(DoctorArgs),
}

/// Where programs that a model wrote are run.
#[derive(Args)]
pub struct SandboxArgs {
    /// The Python that runs programs [default: that of `unsay setup`, else the first on the path]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// Run programs even where the kernel lacks Landlock, seccomp or resource limits: on a machine that
    /// has nothing to lose
    #[arg(long)]
    pub sandbox_degraded: bool,
}

#[derive(Args)]
pub struct SetupArgs {
    /// The Python to make it of [default: the first usable one on the path]
    #[arg(long, value_name = "FILE")]
    pub python: Option<PathBuf>,
    /// Make it anew, also where it is there
    #[arg(long)]
    pub again: bool,
}

#[derive(Args)]
pub struct DoctorArgs {
    /// Say which model, at which quantisation, fits this machine beside a verifier
    #[arg(long)]
    pub recommend: bool,
    /// The memory to recommend for, e.g. 24GB [default: the GPU's, else the machine's]
    #[arg(long = "for", value_name = "SIZE", requires = "recommend", allow_hyphen_values = true)]
    pub memory: Option<MemorySize>,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// Which model, and how it is hosted.
#[derive(Args)]
pub struct ModelArgs {
    /// A model's name (`unsay models`), alone or as NAME:QUANTISATION; hf:owner/name[@revision][:file];
    /// a .gguf file; or a folder with config.json and safetensors
    #[arg(long, default_value = DEFAULT_MODEL)]
    pub model: String,
    /// Threads of the CPU form [default: all]
    #[arg(long)]
    pub threads: Option<usize>,
    /// How keys and values are kept
    #[arg(long, value_enum, default_value_t)]
    pub kv: KvArg,
    /// Most tokens of a dialogue [default: what the model was trained for, or what memory holds]
    #[arg(long)]
    pub context: Option<usize>,
    /// Most memory of the whole process, e.g. 6GiB [default: what the machine can spare]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<MemorySize>,
    /// Memory for keys and values, e.g. 512MiB [default: three dialogues of full length, if they fit]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub pages_memory: Option<MemorySize>,
    /// Forget what was computed when a call ends, as an engine without a cache between calls does: to
    /// see what the cache saves
    #[arg(long)]
    pub no_prefix_cache: bool,
    /// Quantise a plain checkpoint as it is loaded; rows that a type cannot hold take Q8_0, or stay
    #[arg(long, value_enum, value_name = "TYPE")]
    pub quantise: Option<QuantiseArg>,
    /// A LoRA adapter in PEFT's format, held apart from the weights
    #[arg(long, value_name = "FOLDER")]
    pub adapter: Option<PathBuf>,
    /// Add the adapter to the weights instead
    #[arg(long, requires = "adapter")]
    pub merge: bool,
    /// Write the engine's calls, decisions and results to a new file, to run again with
    /// `unsay replay`
    #[arg(long, value_name = "FILE")]
    pub engine_log: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum QuantiseArg {
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_k")]
    Q4K,
    #[value(name = "q6_k")]
    Q6K,
}

/// How a model that can is to think before it answers.
#[derive(Args, Clone, Copy, Default)]
pub struct ThinkingArgs {
    /// Think before answering, or not, where the model's chat template has a switch for it
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub thinking: Option<ThinkingArg>,
    /// Most tokens of each think block; then it is closed and the answer begins
    #[arg(long, value_name = "TOKENS")]
    pub thinking_budget: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ThinkingArg {
    On,
    Off,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum KvArg {
    #[default]
    F16,
    Bf16,
    F32,
}

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct SolveArgs {
    /// The question; without it and without --file it is read from standard input
    pub question: Option<String>,
    /// Read the question from a file
    #[arg(long, conflicts_with = "question")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub thinking: ThinkingArgs,
    /// The method (`unsay methods`)
    #[arg(long, default_value = "ralu")]
    pub method: String,
    /// An option of the method, as name=value; may be given several times
    #[arg(long = "option", short = 'o', value_name = "NAME=VALUE")]
    pub options: Vec<String>,
    /// The question asks for a program with this function
    #[arg(long, value_name = "FUNCTION")]
    pub entry_point: Option<String>,
    /// 0 is greedy [default: the method's own]
    #[arg(long)]
    pub temperature: Option<f32>,
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Most tokens of one reply [default: the method's own]
    #[arg(long)]
    pub max_tokens: Option<usize>,
    /// Print one JSON object instead of the live view
    #[arg(long)]
    pub json: bool,
    /// Write every event to this file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// A folder with prompt templates that replace the built-in ones of the same names
    #[arg(long, value_name = "FOLDER")]
    pub prompts: Option<PathBuf>,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// Show system prompts and every message whole
    #[arg(long, short)]
    pub verbose: bool,
    /// Exit with 0 also when there was no answer (the run is a demonstration)
    #[arg(long, hide = true)]
    pub demo: bool,
}

#[derive(Args)]
pub struct GradeArgs {
    /// The task (`unsay tasks`); `math` with --pairs
    pub task: String,
    /// Lines with the task's fields, or just an item's id, and `response`
    pub file: PathBuf,
    /// The lines hold `gold` and `answer` instead: compare them as values
    #[arg(long)]
    pub pairs: bool,
    /// The task's file, or the folder with it, for lines that have just an id [default: $UNSAY_DATA]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

/// How a run is carried out; none of it changes an answer.
#[derive(Args)]
pub struct RunArgs {
    /// Items under way at a time
    #[arg(long, value_name = "COUNT", default_value_t = 8, value_parser = at_least_one)]
    pub at_once: usize,
    /// Keep no events of the items
    #[arg(long)]
    pub no_traces: bool,
    #[command(flatten)]
    pub sandbox: SandboxArgs,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(format!("{error}")),
    }
}

#[derive(Args)]
pub struct EvalArgs {
    /// A TOML file whose keys are the options below (`task = "gsm8k"`, `methods = ["cot", "ralu"]`); what is
    /// said beside it counts before it, and paths begin at the current folder
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// The task (`unsay tasks`)
    #[arg(long, value_name = "NAME")]
    pub task: String,
    /// The task's file, or the folder with it [default: the task's folder in $UNSAY_DATA]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Methods, the first being what others are compared with: NAME or NAME:OPTION=VALUE
    #[arg(long, value_delimiter = ',', default_value = "ralu")]
    pub methods: Vec<String>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub thinking: ThinkingArgs,
    /// How many seeds
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub seeds: u64,
    #[arg(long, default_value_t = 0)]
    pub first_seed: u64,
    /// Most items
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Draw the items at random, by this seed, instead of taking the first ones
    #[arg(long, value_name = "SEED")]
    pub sample: Option<u64>,
    /// Just these items
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub ids: Vec<String>,
    /// The run's folder; a run that is there and was asked for the same goes on
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Say what would be run, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// 0 is greedy [default: each method's own]
    #[arg(long)]
    pub temperature: Option<f32>,
    /// Most tokens of one reply [default: each method's own]
    #[arg(long)]
    pub max_tokens: Option<usize>,
    /// A folder with prompt templates that replace the built-in ones of the same names
    #[arg(long, value_name = "FOLDER")]
    pub prompts: Option<PathBuf>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct ResumeArgs {
    /// The run's folder
    pub folder: PathBuf,
    /// Threads of the CPU form [default: all]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Most memory of the whole process, e.g. 6GiB [default: what the machine can spare]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<MemorySize>,
    /// Memory for keys and values, e.g. 512MiB [default: three dialogues of full length, if they fit]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub pages_memory: Option<MemorySize>,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args)]
pub struct ReportArgs {
    /// The run's folder
    pub folder: PathBuf,
    /// One line for each method, for other programs
    #[arg(long)]
    pub csv: bool,
    /// One JSON object
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
}

#[derive(Args)]
pub struct TraceArgs {
    /// The run's folder
    pub folder: PathBuf,
    /// The item's id
    pub item: String,
    /// Only of this method, as the plan names it
    #[arg(long)]
    pub method: Option<String>,
    /// Only of this seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// Show system prompts and every message whole
    #[arg(long, short)]
    pub verbose: bool,
}

#[derive(Args)]
pub struct PullArgs {
    /// The model's name (`unsay models`), alone or as NAME:QUANTISATION; hf:owner/name[@revision][:file]
    /// ($HF_TOKEN, $HF_ENDPOINT and $HF_HUB_OFFLINE count); or the path of a model, to look whether it
    /// can be read
    pub name: String,
    /// Read the files again and check their digests, also if they were checked before
    #[arg(long)]
    pub verify: bool,
}

#[derive(Args)]
pub struct TasksArgs {
    #[command(subcommand)]
    pub command: Option<TasksCommand>,
    /// The folder of all data sets [default: $UNSAY_DATA]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Print an array of {name, summary, items, whole, damaged, path}
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum TasksCommand {
    /// Show items of a task with what is right
    Show(ShowArgs),
    /// Tell which questions stand in several data sets: an example for a prompt, or a text to train on, must not
    /// be one that is asked
    Overlaps(OverlapsArgs),
}

#[derive(Args)]
pub struct OverlapsArgs {
    /// The tasks to compare [default: all whose data are here]
    pub names: Vec<String>,
    /// Print one JSON object a line for each shared question, with its digest and both ids
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The task's name
    pub name: String,
    /// How many items
    #[arg(default_value_t = 3)]
    pub count: usize,
    /// The task's file, or a folder with it [default: the task's file in $UNSAY_DATA]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Draw the items at random, by this seed, instead of taking the first ones
    #[arg(long, value_name = "SEED")]
    pub sample: Option<u64>,
    /// Just these items
    #[arg(long, value_delimiter = ',', value_name = "ID,…")]
    pub ids: Vec<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct UnitsArgs {
    /// A Python file; `-` is standard input
    pub file: PathBuf,
    /// Print an array of {id, label, text, lines}
    #[arg(long)]
    pub json: bool,
    /// Write the control-flow graph as SVG into this file instead; `-` is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub graph: Option<PathBuf>,
    /// The function that a task asked for: its bare header is no unit of its own
    #[arg(long)]
    pub entry_point: Option<String>,
}

#[derive(Args)]
pub struct TokenizeArgs {
    /// The text
    pub text: String,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Print a JSON array of ids
    #[arg(long)]
    pub json: bool,
    /// Special tokens written in the text are special
    #[arg(long)]
    pub special: bool,
}

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub struct GenerateArgs {
    /// The text to continue
    #[arg(long)]
    pub prompt: String,
    #[command(flatten)]
    pub model: ModelArgs,
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f32,
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[arg(long, default_value_t = 128)]
    pub max_tokens: usize,
    /// Continuations at the same time, each of a stream of its own; the prompt is read once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub samples: u16,
    /// Name so many of the most probable tokens at each position (with --json)
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub top: usize,
    /// Print one JSON object with the tokens' log-probabilities and the cost
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct ScoreArgs {
    /// What comes before
    #[arg(long)]
    pub prompt: String,
    /// The text whose tokens are scored
    #[arg(long)]
    pub continuation: String,
    /// Name so many of the most probable tokens at each position
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub top: usize,
    /// Print one JSON object with all statistics
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub model: ModelArgs,
}

#[derive(Args)]
pub struct ReplayArgs {
    /// A log that --engine-log wrote
    pub log: PathBuf,
    #[command(flatten)]
    pub model: ModelArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
pub struct PromptsArgs {
    #[command(subcommand)]
    pub command: PromptsCommand,
}

#[derive(Subcommand)]
pub enum PromptsCommand {
    /// Write every built-in template into a folder, to be changed there
    Export {
        /// The folder; it is made where it is missing
        folder: PathBuf,
    },
    /// Show what a template gives
    Render {
        /// The template's name; without it the names are listed
        name: Option<String>,
        /// A variable of the template, as name=value; may be given several times
        #[arg(long = "set", short = 's', value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// A folder with templates that replace the built-in ones
        #[arg(long, value_name = "FOLDER")]
        prompts: Option<PathBuf>,
    },
}
