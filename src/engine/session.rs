//! The handles: an engine, and the sessions that are open on it. They only send messages to the
//! engine's thread and wait for answers, so any asynchronous runtime will do.

use std::sync::{Arc, mpsc as channel};

use tokio::sync::{mpsc, oneshot, watch};

use super::generation::Generation;
use super::hosted::{Hosted, Model, ModelInfo, PageUse, check_ids};
use super::ledger::{LedgerSnapshot, Tag};
use super::message::{Answer, Command};
use super::sequence::Birth;
use super::worker::Worker;
use super::{Cost, EngineError, EngineOptions, Sampling, TokenStats};
use crate::model::AdapterId;
use crate::text::TokenId;

/// A session of an engine, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionId(pub(super) u64);

/// The engine of one device: a handle to the thread that owns the hosted models. The thread ends
/// when the last handle and the last session are dropped.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: channel::Sender<Command>,
    models: Arc<[ModelInfo]>,
    /// Why the thread ended, once it has.
    stopped: watch::Receiver<Option<String>>,
}

/// The end of a session's sequence at some moment. A fork takes its parent's marks too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    position: usize,
    /// How the position before it came to be.
    last: Option<Birth>,
}

impl Mark {
    pub(super) fn new(position: usize, last: Option<Birth>) -> Self {
        Self { position, last }
    }

    /// Length of the sequence at the mark.
    pub fn position(&self) -> usize {
        self.position
    }

    pub(super) fn last(&self) -> Option<Birth> {
        self.last
    }
}

/// Statistics of a continuation.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Scored {
    /// One for each id of the continuation.
    pub tokens: Vec<TokenStats>,
    pub cost: Cost,
}

impl Engine {
    /// Starts the thread that owns the models.
    pub fn start(hosted: Vec<Hosted>, options: EngineOptions) -> Result<Self, EngineError> {
        options.check()?;
        if hosted.is_empty() {
            return Err(EngineError::NoModels);
        }
        let models = hosted
            .into_iter()
            .map(|hosted| Model::new(hosted, options.measure_waste))
            .collect::<Result<Vec<_>, _>>()?;
        let infos: Arc<[ModelInfo]> = models.iter().map(|model| model.info.clone()).collect();
        for (index, info) in infos.iter().enumerate() {
            if infos[..index].iter().any(|earlier| earlier.name == info.name) {
                return Err(EngineError::DuplicateModel { name: info.name.clone() });
            }
        }
        let (commands, received) = channel::channel();
        let (why, stopped) = watch::channel(None);
        let worker = Worker::new(models, options, received);
        std::thread::Builder::new()
            .name("unsay-engine".to_owned())
            .spawn(move || worker.run_to_the_end(&why))
            .map_err(|error| EngineError::Stopped { what: format!("no thread: {error}") })?;
        Ok(Self { commands, models: infos, stopped })
    }

    /// The hosted models.
    pub fn models(&self) -> &[ModelInfo] {
        &self.models
    }

    /// Opens an empty session on a model, by its name.
    pub async fn open(
        &self,
        model: &str,
        adapter: Option<AdapterId>,
    ) -> Result<Session, EngineError> {
        let model = self.index_of(model)?;
        let id = self.ask(|answer| Command::Open { model, adapter, answer }).await?;
        Ok(Session { engine: self.clone(), model, id })
    }

    /// What all calls have cost so far, those in flight included.
    pub async fn ledger(&self) -> Result<LedgerSnapshot, EngineError> {
        self.ask(|answer| Command::Ledger { answer }).await
    }

    /// How many pages of a model are free.
    pub async fn pages(&self, model: &str) -> Result<PageUse, EngineError> {
        let model = self.index_of(model)?;
        self.ask(|answer| Command::Pages { model, answer }).await
    }

    /// Counts the holders of every page anew, and checks the ledger.
    pub async fn check(&self) -> Result<(), EngineError> {
        self.ask(|answer| Command::Check { answer }).await
    }

    fn index_of(&self, name: &str) -> Result<usize, EngineError> {
        self.models.iter().position(|info| info.name == name).ok_or_else(|| {
            let hosted: Vec<&str> = self.models.iter().map(|info| info.name.as_str()).collect();
            EngineError::UnknownModel { name: name.to_owned(), hosted: hosted.join(", ") }
        })
    }

    /// Sends a message and waits for its answer.
    async fn ask<T>(&self, message: impl FnOnce(Answer<T>) -> Command) -> Result<T, EngineError> {
        let (answer, answered) = oneshot::channel();
        self.send(message(answer));
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(self.why_stopped().await),
        }
    }

    /// Sends a message. When the thread has ended the message is lost, and so is the sender of the
    /// answer in it, which its receiver learns.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Why the thread ended; waits for its end.
    async fn why_stopped(&self) -> EngineError {
        let mut stopped = self.stopped.clone();
        let what = match stopped.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => "its thread is gone".to_owned(),
        };
        EngineError::Stopped { what }
    }
}

/// A live sequence on a hosted model: its ids, and what is computed of them. Dropping it closes it.
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    model: usize,
    id: SessionId,
}

impl Session {
    /// The model that it is open on.
    pub fn model(&self) -> &ModelInfo {
        &self.engine.models[self.model]
    }

    /// Adds ids to the sequence. Computes nothing: they are wanted by the next call.
    pub async fn append(&mut self, ids: &[TokenId]) -> Result<(), EngineError> {
        let (session, ids) = (self.id, ids.to_vec());
        self.engine.ask(|answer| Command::Append { session, ids, answer }).await
    }

    /// Draws a reply, which becomes part of the sequence as it comes.
    pub async fn generate(
        &mut self,
        sampling: &Sampling,
        tag: &Tag,
    ) -> Result<Generation<'_>, EngineError> {
        sampling.check(self.model())?;
        let (session, sampling, tag) = (self.id, sampling.clone(), tag.clone());
        let engine = self.engine.clone();
        let (events, received) = mpsc::unbounded_channel();
        // Made before the answer is awaited, so that a caller who gives up there cancels too.
        let generation = Generation::new(self, received);
        let accepted =
            engine.ask(|answer| Command::Generate { session, sampling, tag, events, answer }).await;
        match accepted {
            Ok(()) => Ok(generation),
            Err(error) => {
                generation.refused();
                Err(error)
            }
        }
    }

    /// Log-probabilities of `ids` as the continuation of the sequence, which stays as it is; each
    /// position names the `top` most probable tokens. Answers for every id, or with an error.
    pub async fn score(
        &mut self,
        ids: &[TokenId],
        top: usize,
        tag: &Tag,
    ) -> Result<Scored, EngineError> {
        check_top(top, self.model())?;
        let (session, ids, tag) = (self.id, ids.to_vec(), tag.clone());
        self.engine.ask(|answer| Command::Score { session, ids, top, tag, answer }).await
    }

    /// The present end of the sequence.
    pub async fn mark(&self) -> Result<Mark, EngineError> {
        let session = self.id;
        self.engine.ask(|answer| Command::Mark { session, answer }).await
    }

    /// Drops all ids after the mark, with their pages; answers with how many.
    pub async fn rewind(&mut self, mark: Mark) -> Result<usize, EngineError> {
        let session = self.id;
        self.engine.ask(|answer| Command::Rewind { session, mark, answer }).await
    }

    /// A second session with the same past, on the same pages; the two go on independently.
    pub async fn fork(&self) -> Result<Session, EngineError> {
        let session = self.id;
        let id = self.engine.ask(|answer| Command::Fork { session, answer }).await?;
        Ok(Session { engine: self.engine.clone(), model: self.model, id })
    }

    /// The ids of the sequence.
    pub async fn ids(&self) -> Result<Vec<TokenId>, EngineError> {
        let session = self.id;
        self.engine.ask(|answer| Command::Ids { session, answer }).await
    }

    /// How many ids the sequence has.
    pub async fn len(&self) -> Result<usize, EngineError> {
        let session = self.id;
        self.engine.ask(|answer| Command::Len { session, answer }).await
    }

    /// Whether the sequence has no ids.
    pub async fn is_empty(&self) -> Result<bool, EngineError> {
        Ok(self.len().await? == 0)
    }

    pub(super) fn id(&self) -> SessionId {
        self.id
    }

    pub(super) fn send(&self, command: Command) {
        self.engine.send(command);
    }

    pub(super) async fn why_stopped(&self) -> EngineError {
        self.engine.why_stopped().await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.engine.send(Command::Close { session: self.id });
    }
}

impl Sampling {
    /// Refuses values that mean nothing, or nothing on this model.
    pub fn check(&self, model: &ModelInfo) -> Result<(), EngineError> {
        let need = |holds: bool, option: &'static str, value: &dyn ToString, limit: &str| {
            if holds {
                return Ok(());
            }
            let (value, limit) = (value.to_string(), limit.to_owned());
            Err(EngineError::BadSampling { option, value, limit })
        };
        let finite = "it must be a finite number";
        let Self { temperature, top_p, min_p, presence_penalty, frequency_penalty, .. } = self;
        let repetition = self.repetition_penalty;
        need(
            temperature.is_finite() && *temperature >= 0.0,
            "temperature",
            temperature,
            "it must be 0 (greedy) or a positive finite number",
        )?;
        need(*top_p > 0.0 && *top_p <= 1.0, "top_p", top_p, "it must be above 0 and at most 1")?;
        need((0.0..=1.0).contains(min_p), "min_p", min_p, "it must be from 0 to 1")?;
        need(presence_penalty.is_finite(), "presence_penalty", presence_penalty, finite)?;
        need(frequency_penalty.is_finite(), "frequency_penalty", frequency_penalty, finite)?;
        need(
            repetition.is_finite() && repetition > 0.0,
            "repetition_penalty",
            &repetition,
            "it must be a positive finite number; 1 is none",
        )?;
        need(self.max_tokens > 0, "max_tokens", &self.max_tokens, "it must be at least 1")?;
        for (index, &(id, bias)) in self.bias.iter().enumerate() {
            need(bias.is_finite(), "bias", &bias, finite)?;
            let twice = self.bias[..index].iter().any(|&(earlier, _)| earlier == id);
            need(!twice, "bias", &id.0, "a token id may have one bias only")?;
        }
        let empty = self.stop_strings.iter().any(String::is_empty);
        need(!empty, "stop_strings", &"\"\"", "a stop string must not be empty")?;
        check_top(self.top_logprobs, model)?;
        let named: Vec<TokenId> = self.bias.iter().map(|&(id, _)| id).collect();
        check_ids(model, &named)?;
        check_ids(model, &self.stop_ids)
    }
}

fn check_top(top: usize, model: &ModelInfo) -> Result<(), EngineError> {
    if top <= model.vocab_size {
        return Ok(());
    }
    Err(EngineError::BadSampling {
        option: "top_logprobs",
        value: top.to_string(),
        limit: format!("the vocabulary of {:?} has {} ids", model.name, model.vocab_size),
    })
}
