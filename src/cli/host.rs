//! A model made ready by its name: files, tokenizer, template, and an engine that hosts it.

use std::sync::Arc;
use std::time::Instant;

use super::arguments::{KvArg, ModelArgs};
use super::failure::{Failure, chain};
use crate::device::{KvType, PAGE_POSITIONS};
use crate::engine::{Engine, EngineError, EngineOptions, Hosted};
use crate::llm::Embedded;
use crate::model::{self, LoadOptions, ModelError};
use crate::store::{self, Cache, ModelFiles};
use crate::text::{ChatTemplate, TemplateError, Tokenizer, TokenizerError, stop_ids};

/// Dialogues of full length that the pages suffice for. Memory is taken as pages are written.
const FULL_DIALOGUES: usize = 3;

/// A hosted model and what is needed to speak with it.
pub struct Host {
    pub name: String,
    pub engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    pub files: ModelFiles,
    pub threads: usize,
    /// Seconds from opening the file to an engine that answers.
    pub load_seconds: f64,
}

/// Opens the model's files.
pub fn open(args: &ModelArgs) -> Result<ModelFiles, Failure> {
    Ok(store::open(&args.model, &Cache::locate()?)?)
}

/// Loads the model and starts an engine for it.
pub fn host(args: &ModelArgs) -> Result<Host, Failure> {
    let begun = Instant::now();
    let threads = threads(args)?;
    let files = open(args)?;
    let tokenizer = Arc::new(Tokenizer::of_model(&files)?);
    let template = ChatTemplate::of_model(&files)?;
    let stop_ids = stop_ids(&files, &tokenizer, template.as_ref())?;
    let spec = model::ModelSpec::from_files(&files)?;
    let context = args.context.unwrap_or(spec.context_length);
    if !(1..=spec.context_length).contains(&context) {
        return Err(Failure::usage(format!("--context is {context}"))
            .hint(format!("the model was trained for {0}; give 1 to {0}", spec.context_length)));
    }
    let options = LoadOptions {
        threads,
        kv: match args.kv {
            KvArg::F16 => KvType::F16,
            KvArg::F32 => KvType::F32,
        },
        pages: FULL_DIALOGUES.saturating_mul(context.div_ceil(PAGE_POSITIONS)),
        context: args.context,
        keep_hidden: true,
    };
    let decoder = model::load(&files, &options)?;
    let name = display_name(&args.model);
    let bytes = Arc::clone(&tokenizer);
    let tokens = Arc::new(move |id| bytes.token_bytes(id).unwrap_or_default().to_vec());
    let hosted = Hosted { name: name.clone(), decoder, tokens, stop_ids, adapters: Vec::new() };
    let engine = Engine::start(vec![hosted], EngineOptions::default())?;
    Ok(Host {
        name,
        engine,
        tokenizer,
        files,
        threads,
        load_seconds: begun.elapsed().as_secs_f64(),
    })
}

impl Host {
    /// The model as methods see it. A model without a chat template holds no dialogues.
    pub fn llm(&self) -> Result<Embedded, Failure> {
        let template = ChatTemplate::required(&self.files)?;
        Ok(Embedded::new(
            self.engine.clone(),
            &self.name,
            Arc::clone(&self.tokenizer),
            Arc::new(template),
        )?)
    }
}

/// A manifest's name as it is; of a path its last part.
fn display_name(model: &str) -> String {
    std::path::Path::new(model)
        .file_stem()
        .map_or_else(|| model.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// More threads than this a processor only make it change places.
const THREADS_A_PROCESSOR: usize = 4;

fn threads(args: &ModelArgs) -> Result<usize, Failure> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    let most = THREADS_A_PROCESSOR * here;
    match args.threads {
        None => Ok(here),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(n) => Err(Failure::usage(format!("--threads is {n}"))
            .hint(format!("this machine has {here} processors; give 1 to {most}"))),
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
