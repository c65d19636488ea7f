//! A model made ready by its name, within the memory that the user or the machine allows.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use super::arguments::{KvArg, ModelArgs, QuantiseArg, ThinkingArg, ThinkingArgs};
use super::failure::{Failure, chain};
use super::output::note;
use crate::device::KvType;
use crate::engine::plan::{Budget, Plan};
use crate::engine::{Engine, EngineError, EngineOptions, ReplayError, Replayed};
use crate::llm::{
    self, Embedded, HostAdapter, HostError, HostModel, HostOptions, Hosting, Thinking,
};
use crate::model::{AdapterId, ModelError, Quantise};
use crate::store::{self, AdapterFiles, Cache, ModelFiles};
use crate::text::{TemplateError, Tokenizer, TokenizerError};

/// A hosted model and what is needed to speak with it.
pub struct Host {
    pub name: String,
    pub engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    pub threads: usize,
    /// How long loading took, and how fast it was.
    pub loaded: String,
    /// What sessions are opened with.
    pub adapter: Option<AdapterId>,
    hosted: llm::Host,
}

/// How the plan of memory is told on standard error before loading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tell {
    Nothing,
    Line,
    Table,
}

/// Opens the model's files.
pub fn open(args: &ModelArgs) -> Result<ModelFiles, Failure> {
    Ok(store::open(&args.model, &Cache::locate()?)?)
}

/// Plans the model's memory, loads it and starts an engine for it.
pub fn host(args: &ModelArgs, tell: Tell) -> Result<Host, Failure> {
    host_thinking(args, ThinkingArgs::default(), tell)
}

/// The same for a model that is to hold dialogues.
pub fn host_thinking(
    args: &ModelArgs,
    thinking: ThinkingArgs,
    tell: Tell,
) -> Result<Host, Failure> {
    let (name, hosting) = plan(args, thinking)?;
    if tell != Tell::Nothing {
        hosting.memory().notes().iter().for_each(|line| note!("{line}"));
    }
    match tell {
        Tell::Nothing => {}
        Tell::Line => note!("plan: {}", hosting.memory().line()),
        Tell::Table => note!("{}", hosting.memory()),
    }
    let hosted = hosting.load(log_file(args)?)?;
    let engine = hosted.engine.clone();
    let tokenizer = Arc::clone(&hosted.models[0].tokenizer);
    let (threads, loaded) = (hosted.threads, hosted.loaded());
    let adapter = hosted.models[0].adapters.first();
    let adapter = adapter.map(|adapter| hosted.adapter(&name, adapter)).transpose()?;
    Ok(Host { name, engine, tokenizer, threads, loaded, adapter, hosted })
}

/// Runs an engine's log again on the model.
pub fn replay(args: &ModelArgs, log: impl BufRead) -> Result<Replayed, Failure> {
    Ok(plan(args, ThinkingArgs::default())?.1.replay(log)?)
}

/// The SHA-256 of all that decides the model's weights: of its files alone, or with its adapter's and the
/// type that it is quantised to.
pub fn digest(args: &ModelArgs) -> Result<String, Failure> {
    let files = open(args)?.digest()?;
    let mut all = files.clone();
    if let Some(folder) = &args.adapter {
        let how = if args.merge { "merged" } else { "apart" };
        all += &format!("\nadapter {how} {}", adapter(folder)?.files.digest()?);
    }
    if let Some(kind) = args.quantise {
        all += &format!("\nquantised {}", quantise_name(kind));
    }
    Ok(if all == files { files } else { store::sha256_of_text(&all) })
}

/// The type that weights are quantised to, by name.
pub fn quantise_name(kind: QuantiseArg) -> &'static str {
    match kind {
        QuantiseArg::Q8_0 => "q8_0",
        QuantiseArg::Q4K => "q4_k",
        QuantiseArg::Q6K => "q6_k",
    }
}

/// The other way round.
pub fn quantise_of(name: &str) -> Option<QuantiseArg> {
    [QuantiseArg::Q8_0, QuantiseArg::Q4K, QuantiseArg::Q6K]
        .into_iter()
        .find(|kind| quantise_name(*kind) == name)
}

/// The plan of the model's memory in a line; nothing is loaded.
pub fn plan_line(args: &ModelArgs) -> Result<String, Failure> {
    Ok(plan(args, ThinkingArgs::default())?.1.memory().line())
}

/// How keys and values are kept, by name.
pub fn kv(args: &ModelArgs) -> &'static str {
    match args.kv {
        KvArg::F16 => "f16",
        KvArg::Bf16 => "bf16",
        KvArg::F32 => "f32",
    }
}

/// The other way round.
pub fn kv_of(name: &str) -> Option<KvArg> {
    match name {
        "f16" => Some(KvArg::F16),
        "bf16" => Some(KvArg::Bf16),
        "f32" => Some(KvArg::F32),
        _ => None,
    }
}

/// The file of `--engine-log`, which must be new.
fn log_file(args: &ModelArgs) -> Result<Option<Box<dyn Write + Send>>, Failure> {
    let Some(path) = &args.engine_log else { return Ok(None) };
    let file = std::fs::File::create_new(path).map_err(|error| {
        Failure::usage(format!("cannot write {}: {error}", path.display()))
            .hint("a log is never written over: name a new file in a folder that exists")
    })?;
    Ok(Some(Box::new(file)))
}

fn plan(args: &ModelArgs, thinking: ThinkingArgs) -> Result<(String, Hosting), Failure> {
    let threads = threads(args)?;
    let budget = Budget { memory: args.memory, page_memory: args.pages_memory };
    let adapter = args.adapter.as_deref().map(adapter).transpose()?;
    let merged = adapter.as_ref().filter(|_| args.merge).map(|adapter| adapter.files.clone());
    let model = HostModel {
        kv: match args.kv {
            KvArg::F16 => KvType::F16,
            KvArg::Bf16 => KvType::Bf16,
            KvArg::F32 => KvType::F32,
        },
        context: args.context,
        quantise: args.quantise.map(|kind| match kind {
            QuantiseArg::Q8_0 => Quantise::Q8_0,
            QuantiseArg::Q4K => Quantise::Q4K,
            QuantiseArg::Q6K => Quantise::Q6K,
        }),
        adapters: adapter.filter(|_| !args.merge).into_iter().collect(),
        merge: merged,
        thinking: Thinking {
            switch: thinking.thinking.map(|thinking| thinking == ThinkingArg::On),
            budget: thinking.thinking_budget,
        },
        ..HostModel::open(&args.model, &Cache::locate()?)?
    };
    let name = model.name.clone();
    let engine = EngineOptions { keep_prefixes: !args.no_prefix_cache, ..EngineOptions::default() };
    let options = HostOptions { threads, budget, engine };
    Ok((name, Hosting::plan(vec![model], options)?))
}

/// An adapter by its folder, whose name is its own.
fn adapter(folder: &Path) -> Result<HostAdapter, Failure> {
    let name = folder.file_name().unwrap_or(folder.as_os_str());
    let name = name.to_string_lossy().into_owned();
    Ok(HostAdapter { name, files: AdapterFiles::open(folder)? })
}

impl Host {
    /// The model as methods see it, with its adapter if it has one. A model without a chat template
    /// holds no dialogues.
    pub fn llm(&self) -> Result<Embedded, Failure> {
        let llm = self.hosted.llm(&self.name)?;
        Ok(match self.adapter {
            None => llm,
            Some(adapter) => llm.with_adapter(adapter),
        })
    }

    /// The memory that was planned.
    pub fn plan(&self) -> &Plan {
        &self.hosted.plan
    }
}

/// More threads than this a processor only make it change places.
const THREADS_A_PROCESSOR: usize = 4;

fn threads(args: &ModelArgs) -> Result<usize, Failure> {
    // The affinity and the quota of the control group count.
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let most = THREADS_A_PROCESSOR * here;
    match args.threads {
        None => Ok(here),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(n) => Err(Failure::usage(format!("--threads is {n}"))
            .hint(format!("this machine has {here} processors; give 1 to {most}"))),
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Store(error) => error.into(),
            HostError::Tokenizer(error) => error.into(),
            HostError::Template(error) => error.into(),
            HostError::Model(error) => error.into(),
            HostError::Engine(error) => error.into(),
            HostError::Plan(error) => Failure::usage(chain(&error)),
            error @ (HostError::NoAdapter { .. } | HostError::NoToken { .. }) => {
                Failure::usage(chain(&error))
            }
            HostError::Replay(error @ ReplayError::Differs { .. }) => {
                Failure::stated(chain(&error))
            }
            HostError::Replay(error) => Failure::usage(chain(&error)),
        }
    }
}

impl From<TokenizerError> for Failure {
    fn from(error: TokenizerError) -> Self {
        Failure::usage(chain(&error))
    }
}

impl From<TemplateError> for Failure {
    fn from(error: TemplateError) -> Self {
        Failure::usage(chain(&error))
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Failure::usage(chain(&error))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let message = chain(&error);
        match error {
            EngineError::Stopped { .. } | EngineError::Unbalanced { .. } => {
                Failure::stated(message)
            }
            _ => Failure::usage(message),
        }
    }
}
