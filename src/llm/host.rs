//! Hosting: from names or paths of models to one engine that holds them all, on one pool of threads,
//! within one budget of memory that is known before anything is loaded.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::{Embedded, Thinking};
use crate::device::KvType;
use crate::device::cpu::Cpu;
use crate::engine::plan::{Budget, Demand, Machine, MemorySize, Parts, Plan, PlanError};
use crate::engine::{self, Engine, EngineError, EngineOptions, Hosted, ReplayError, Replayed};
use crate::model::{AdapterId, Footprint, LoadOptions, ModelError, Quantise, Transformer};
use crate::store::{self, AdapterFiles, Cache, ModelFiles, StoreError};
use crate::text::{ChatTemplate, TemplateError, Tokenizer, TokenizerError, stop_ids};

/// Bytes of a tokenizer for each token of its vocabulary. A stated allowance: the default model's
/// takes 300 when it is read, and more as its cache of words fills.
pub(super) const TOKENIZER_BYTES: u64 = 320;

/// Why a model could not be hosted.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error(
        "the manifest of {model} names the stop token {token:?}, which its vocabulary does not have; \
         correct the manifest"
    )]
    NoToken { model: String, token: String },
    #[error("the model {model:?} has no adapter {name:?}; it has {known}")]
    NoAdapter { model: String, name: String, known: String },
}

/// An adapter that a model is hosted with.
#[derive(Clone, Debug)]
pub struct HostAdapter {
    /// The name by which it is asked for.
    pub name: String,
    pub files: AdapterFiles,
}

/// A model that is to be hosted, and how.
#[derive(Clone, Debug)]
pub struct HostModel {
    /// The name by which it is spoken to. The same files may be hosted under several.
    pub name: String,
    pub files: ModelFiles,
    pub kv: KvType,
    /// Most positions of a sequence; None: as many as the model was trained for, or fewer where
    /// memory does not suffice for the pages.
    pub context: Option<usize>,
    /// Hidden rows stay with their pages.
    pub keep_hidden: bool,
    /// What plain matrices are quantised to; None: nothing is.
    pub quantise: Option<Quantise>,
    /// Adapters that are held apart: they share the base, and each dialogue has one of them or none.
    pub adapters: Vec<HostAdapter>,
    /// An adapter that is added to the weights.
    pub merge: Option<AdapterFiles>,
    pub thinking: Thinking,
    /// A chat template that goes for the one in the files.
    pub template: Option<String>,
    /// Tokens that end a reply beside those which the files name.
    pub stop_tokens: Vec<String>,
}

impl HostModel {
    /// A model of these files: f16, its own context, hidden rows kept, weights as they are.
    pub fn new(name: impl Into<String>, files: ModelFiles) -> Self {
        Self {
            name: name.into(),
            files,
            kv: KvType::default(),
            context: None,
            keep_hidden: true,
            quantise: None,
            adapters: Vec::new(),
            merge: None,
            thinking: Thinking::default(),
            template: None,
            stop_tokens: Vec::new(),
        }
    }

    /// How it is loaded onto so many pages.
    fn load_options(&self, threads: usize, pages: usize, context: Option<usize>) -> LoadOptions {
        LoadOptions {
            threads,
            kv: self.kv,
            pages,
            context,
            keep_hidden: self.keep_hidden,
            quantise: self.quantise,
            adapters: self.adapters.iter().map(|adapter| adapter.files.clone()).collect(),
            merge: self.merge.clone(),
        }
    }

    /// Opens a model by the name of a manifest, by its name on the hub, or by a path. It is called by
    /// its name, or by the last part of the path without the ending .gguf.
    pub fn open(name_or_path: &str, cache: &Cache) -> Result<Self, StoreError> {
        if let Some(package) = store::named(name_or_path, cache)? {
            return Ok(Self {
                template: package.manifest.template.clone(),
                stop_tokens: package.manifest.stop_tokens.clone(),
                ..Self::new(package.name.clone(), package.open()?)
            });
        }
        let files = store::open(name_or_path, cache)?;
        let last = Path::new(name_or_path).file_name();
        let last = last.map_or_else(|| name_or_path.into(), |name| name.to_string_lossy());
        let name = last.strip_suffix(".gguf").unwrap_or(&last).to_owned();
        Ok(Self::new(name, files))
    }
}

/// How models are hosted together.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions {
    /// Threads that all models share; at least 1.
    pub threads: usize,
    pub budget: Budget,
    /// Its `page_memory`, if it has one, goes for the budget's where that has none.
    pub engine: EngineOptions,
}

impl Default for HostOptions {
    /// All threads that the process may use (its control group's quota counts), and what memory the
    /// machine can spare.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads, budget: Budget::default(), engine: EngineOptions::default() }
    }
}

/// Models with the plan of their memory, not loaded yet.
pub struct Hosting {
    models: Vec<HostModel>,
    options: HostOptions,
    plan: Plan,
    begun: Instant,
}

impl Hosting {
    /// Plans the memory of these models from the headers of their files; nothing is loaded. What
    /// does not fit is refused.
    pub fn plan(models: Vec<HostModel>, options: HostOptions) -> Result<Self, HostError> {
        let begun = Instant::now();
        for (index, model) in models.iter().enumerate() {
            if models[..index].iter().any(|other| other.name == model.name) {
                return Err(EngineError::DuplicateModel { name: model.name.clone() }.into());
            }
        }
        let demands = models.iter().map(demand).collect::<Result<Vec<_>, _>>()?;
        let engine_pages = options.engine.page_memory.map(MemorySize);
        let page_memory = options.budget.page_memory.or(engine_pages);
        let budget = Budget { page_memory, ..options.budget };
        let plan = Plan::of(&demands, &budget, Machine::read().as_ref())?;
        Ok(Self { models, options, plan, begun })
    }

    /// What will be taken.
    pub fn memory(&self) -> &Plan {
        &self.plan
    }

    /// Loads the models, one behind the other, and starts their engine, with a log if there is
    /// somewhere to write it.
    pub fn load(self, log: Option<Box<dyn Write + Send>>) -> Result<Host, HostError> {
        let (plan, threads, begun) = (self.plan.clone(), self.options.threads, self.begun);
        let options = EngineOptions { page_memory: Some(plan.page_memory), ..self.options.engine };
        let (hosted, models) = self.prepare()?;
        let engine = match log {
            None => Engine::start(hosted, options)?,
            Some(log) => Engine::start_logged(hosted, options, log)?,
        };
        let load_seconds = begun.elapsed().as_secs_f64();
        Ok(Host { engine, models, plan, threads, load_seconds })
    }

    /// Loads the models and runs an engine's log again on them.
    pub fn replay(self, log: impl BufRead) -> Result<Replayed, HostError> {
        let (hosted, _) = self.prepare()?;
        Ok(engine::replay(hosted, log)?)
    }

    fn prepare(self) -> Result<(Vec<Hosted>, Vec<HostedModel>), HostError> {
        let Self { models, options, plan, .. } = self;
        let cpu = Cpu::new(options.threads).map_err(ModelError::from)?;
        let (mut hosted, mut loaded) = (Vec::new(), Vec::new());
        for (model, planned) in models.into_iter().zip(&plan.models) {
            let (pages, context) = (planned.page_count, Some(planned.context));
            let load = model.load_options(options.threads, pages, context);
            let (guest, hosted_model) = prepare(model, &load, cpu.beside())?;
            hosted.push(guest);
            loaded.push(hosted_model);
        }
        Ok((hosted, loaded))
    }
}

/// Plans and loads in one go.
pub fn host(models: Vec<HostModel>, options: HostOptions) -> Result<Host, HostError> {
    Hosting::plan(models, options)?.load(None)
}

fn demand(model: &HostModel) -> Result<Demand, ModelError> {
    // The plan decides how many pages there are; until then the table of rotations is whole.
    let options = model.load_options(1, usize::MAX, model.context);
    let footprint = Footprint::of(&model.files, &options)?;
    Ok(Demand {
        name: model.name.clone(),
        kv: model.kv,
        footprint,
        context_is_wanted: model.context.is_some(),
        beside: TOKENIZER_BYTES * footprint.vocab as u64,
    })
}

/// An engine with its models, and what is needed to speak with them.
pub struct Host {
    pub engine: Engine,
    /// In the order in which they were given.
    pub models: Vec<HostedModel>,
    pub plan: Plan,
    pub threads: usize,
    /// Seconds from planning to an engine that answers.
    pub load_seconds: f64,
}

/// A hosted model beside its engine.
pub struct HostedModel {
    pub name: String,
    pub files: ModelFiles,
    pub tokenizer: Arc<Tokenizer>,
    /// None: the model holds no dialogues.
    pub template: Option<Arc<ChatTemplate>>,
    /// Names of the adapters that are held apart, by their number.
    pub adapters: Vec<String>,
    pub thinking: Thinking,
}

impl Host {
    /// A model with one of its adapters, as methods see it.
    pub fn adapted(&self, name: &str, adapter: &str) -> Result<Embedded, HostError> {
        let llm = self.llm(name)?;
        Ok(llm.with_adapter(self.adapter(name, adapter)?))
    }

    /// How long loading took, and how fast: bytes of weights that were copied each second; what stays in
    /// the mapped file is read as it is used.
    pub fn loaded(&self) -> String {
        let sum = |part: fn(&Parts) -> u64| self.plan.models.iter().map(|m| part(&m.parts)).sum();
        let copied: u64 = sum(|parts| parts.held_weights + parts.adapters);
        let mapped: u64 = sum(|parts| parts.mapped_weights);
        let rate = MemorySize((copied as f64 / self.load_seconds.max(1e-9)) as u64);
        let (seconds, copied) = (self.load_seconds, MemorySize(copied));
        let mut line = format!("loaded in {seconds:.2} s, {copied} of weights at {rate}/s");
        if mapped > 0 {
            line.push_str(&format!(", {} stay mapped", MemorySize(mapped)));
        }
        line
    }

    /// The number of a model's adapter, by the names that both were given.
    pub fn adapter(&self, name: &str, adapter: &str) -> Result<AdapterId, HostError> {
        let hosted = self.models.iter().find(|model| model.name == name);
        let known = hosted.map_or(&[][..], |model| &model.adapters);
        let found = known.iter().position(|known| known == adapter);
        let found = found.and_then(|at| u32::try_from(at).ok()).map(AdapterId);
        found.ok_or_else(|| HostError::NoAdapter {
            model: name.to_owned(),
            name: adapter.to_owned(),
            known: if known.is_empty() { "none".into() } else { known.join(", ") },
        })
    }

    /// A model as methods see it, by the name that it was given. One without a chat template holds no
    /// dialogues and is refused.
    pub fn llm(&self, name: &str) -> Result<Embedded, HostError> {
        let Some(model) = self.models.iter().find(|model| model.name == name) else {
            let names: Vec<&str> = self.models.iter().map(|model| model.name.as_str()).collect();
            let hosted = names.join(", ");
            return Err(EngineError::UnknownModel { name: name.to_owned(), hosted }.into());
        };
        let template = match &model.template {
            Some(template) => Arc::clone(template),
            None => Arc::new(ChatTemplate::required(&model.files)?),
        };
        let llm = Embedded::new(self.engine.clone(), name, Arc::clone(&model.tokenizer), template)?;
        Ok(llm.with_thinking(model.thinking, model.files.path())?)
    }
}

/// Reads a model's tokenizer and template and loads its weights onto a device.
fn prepare(
    model: HostModel,
    load: &LoadOptions,
    cpu: Cpu,
) -> Result<(Hosted, HostedModel), HostError> {
    let HostModel { name, files, .. } = model;
    let tokenizer = Arc::new(Tokenizer::of_model(&files)?);
    let template = match &model.template {
        Some(own) => Some(ChatTemplate::new(own, Path::new(&name))?),
        None => ChatTemplate::of_model(&files)?,
    };
    let template = template.map(Arc::new);
    let mut stops = stop_ids(&files, &tokenizer, template.as_deref())?;
    for text in &model.stop_tokens {
        let token = tokenizer.token_id(text);
        stops.push(
            token.ok_or_else(|| HostError::NoToken { model: name.clone(), token: text.clone() })?,
        );
    }
    stops.sort();
    stops.dedup();
    let hosted = Hosted {
        name: name.clone(),
        tokens: tokenizer.clone(),
        stop_ids: stops,
        adapters: (0..load.adapters.len() as u32).map(AdapterId).collect(),
        decoder: Box::new(Transformer::load_with(cpu, &files, load)?),
    };
    let adapters = model.adapters.into_iter().map(|adapter| adapter.name).collect();
    let thinking = model.thinking;
    Ok((hosted, HostedModel { name, files, tokenizer, template, adapters, thinking }))
}

impl Embedded {
    /// Loads one model as it is told, without a plan, and starts an engine that hosts it alone.
    pub fn start(
        name: &str,
        files: &ModelFiles,
        load: &LoadOptions,
        options: EngineOptions,
    ) -> Result<Self, HostError> {
        let template = ChatTemplate::required(files)?;
        let cpu = Cpu::new(load.threads).map_err(ModelError::from)?;
        let (hosted, model) = prepare(HostModel::new(name, files.clone()), load, cpu)?;
        let engine = Engine::start(vec![hosted], options)?;
        Ok(Self::new(engine, name, model.tokenizer, Arc::new(template))?)
    }
}
