//! The handles: an engine, and the sessions that are open on it. A session's ids are with its handle
//! and go to the engine's thread with a call, so marks, rewinds and forks wait for nobody. Calls only
//! send messages and wait for answers, so any asynchronous runtime will do.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc as channel};

use tokio::sync::{Mutex, mpsc, oneshot, watch};

use super::generation::{Generated, Generation};
use super::hosted::{Hosted, Model, ModelInfo, PageUse, check_ids};
use super::ledger::LedgerSnapshot;
use super::memory::{Memory, Owner};
use super::message::{Answer, Arrived, Command};
use super::request::{Reply, Request, Scoring, Task, Work};
use super::sequence::{Birth, Sequence};
use super::worker::Worker;
use super::{Call, Cost, EngineError, EngineOptions, Sampling, TokenStats};
use crate::model::AdapterId;
use crate::text::TokenId;

/// Numbers that are never used twice: of calls, and of appends and draws.
#[derive(Debug, Default)]
pub(super) struct Serials(AtomicU64);

impl Serials {
    pub(super) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The engine of one device: a handle to the thread that owns the hosted models. The thread ends
/// when the last handle and the last session are dropped.
#[derive(Clone, Debug)]
pub struct Engine {
    commands: channel::Sender<Command>,
    models: Arc<[ModelInfo]>,
    serials: Arc<Serials>,
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
    /// Length of the sequence at the mark.
    pub fn position(&self) -> usize {
        self.position
    }
}

/// Statistics of a continuation, or of a session's own ids.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Scored {
    /// One for each id.
    pub tokens: Vec<TokenStats>,
    pub cost: Cost,
}

/// The state of an engine that hosts these models.
pub(super) fn worker_of(
    hosted: Vec<Hosted>,
    options: EngineOptions,
) -> Result<Worker, EngineError> {
    options.check()?;
    if hosted.is_empty() {
        return Err(EngineError::NoModels);
    }
    let models = hosted
        .into_iter()
        .map(|hosted| Model::new(hosted, options.measure_waste))
        .collect::<Result<Vec<_>, _>>()?;
    for (index, model) in models.iter().enumerate() {
        let name = &model.info.name;
        if models[..index].iter().any(|earlier| earlier.info.name == *name) {
            return Err(EngineError::DuplicateModel { name: name.clone() });
        }
        let needed = model.info.page_bytes as u64;
        if let Some(limit) = options.page_memory.filter(|&limit| limit < needed) {
            return Err(EngineError::PageMemory { model: name.clone(), needed, limit });
        }
    }
    let memory = Memory { models, page_memory: options.page_memory, evicted: 0 };
    Ok(Worker::new(memory, options, Arc::default()))
}

impl Engine {
    /// Starts the thread that owns the models.
    pub fn start(hosted: Vec<Hosted>, options: EngineOptions) -> Result<Self, EngineError> {
        Self::run(worker_of(hosted, options)?)
    }

    /// As [`Engine::start`], with a log of all calls, decisions and results, a JSON object a line,
    /// that [`replay`](super::replay) runs again. When it can no longer be written it ends, and the
    /// ledger says so.
    pub fn start_logged(
        hosted: Vec<Hosted>,
        options: EngineOptions,
        log: Box<dyn Write + Send>,
    ) -> Result<Self, EngineError> {
        let mut worker = worker_of(hosted, options)?;
        worker.log_to(log);
        Self::run(worker)
    }

    fn run(worker: Worker) -> Result<Self, EngineError> {
        let models: Arc<[ModelInfo]> =
            worker.memory.models.iter().map(|model| model.info.clone()).collect();
        let serials = Arc::clone(&worker.serials);
        let (commands, received) = channel::channel();
        let (why, stopped) = watch::channel(None);
        std::thread::Builder::new()
            .name("unsay-engine".to_owned())
            .spawn(move || worker.run_to_the_end(&received, &why))
            .map_err(|error| EngineError::Stopped { what: format!("no thread: {error}") })?;
        Ok(Self { commands, models, serials, stopped })
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
        let ModelInfo { name, adapters, .. } = &self.models[model];
        if let Some(adapter) = adapter.filter(|adapter| !adapters.contains(adapter)) {
            let (model, known) = (name.clone(), adapters.len());
            return Err(EngineError::UnknownAdapter { model, adapter, known });
        }
        Ok(self.session(Owner { model, adapter }, Sequence::default()))
    }

    fn session(&self, owner: Owner, sequence: Sequence) -> Session {
        let state = Mutex::new(State { sequence, away: None });
        Session { engine: self.clone(), owner, state }
    }

    /// What all calls have cost so far, those in flight included.
    pub async fn ledger(&self) -> Result<LedgerSnapshot, EngineError> {
        self.ask(|answer| Command::Ledger { answer }).await
    }

    /// How many pages of a model are free, and how many hold prefixes in nobody's use.
    pub async fn pages(&self, model: &str) -> Result<PageUse, EngineError> {
        let model = self.index_of(model)?;
        self.ask(|answer| Command::Pages { model, answer }).await
    }

    /// Gives up every computed prefix that no call in flight stands on.
    pub async fn clear_cache(&self) -> Result<(), EngineError> {
        self.ask(|answer| Command::ClearCache { answer }).await
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

    /// Sends a call; answers with its number.
    fn call(&self, owner: Owner, call: Call, task: Task) -> u64 {
        let number = self.serials.next();
        let request = Request::new(owner, call, task);
        self.send(Command::Call(Box::new(Arrived { number, request })));
        number
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

/// A live sequence on a hosted model. What is computed of it stays in the engine's pages as long as
/// nothing else wants their memory.
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    owner: Owner,
    state: Mutex<State>,
}

/// The sequence, or where it comes back from.
#[derive(Debug)]
struct State {
    sequence: Sequence,
    away: Option<Away>,
}

/// A sequence that a reply is being added to.
#[derive(Debug)]
struct Away {
    home: oneshot::Receiver<Sequence>,
    /// How much of it the caller wants: a reply that was dropped ends with what was received.
    keep: Option<usize>,
}

impl Session {
    /// The model that it is open on.
    pub fn model(&self) -> &ModelInfo {
        &self.engine.models[self.owner.model]
    }

    /// Adds ids to the sequence. Computes nothing: they are wanted by the next call.
    pub async fn append(&mut self, ids: &[TokenId]) -> Result<(), EngineError> {
        let serial = self.engine.serials.next();
        check_ids(self.model(), ids)?;
        let needed = self.len().await? + ids.len();
        self.check_length(needed)?;
        let sequence = &mut self.state.get_mut().sequence;
        sequence.append(ids, Birth::appended(serial));
        Ok(())
    }

    /// Draws a reply, which becomes part of the sequence as it comes.
    pub async fn generate(
        &mut self,
        sampling: &Sampling,
        call: impl Into<Call>,
    ) -> Result<Generation<'_>, EngineError> {
        sampling.check(self.model())?;
        let start = self.len().await?;
        if start == 0 {
            return Err(EngineError::EmptySequence);
        }
        self.check_length(start + 1)?;
        let (events, received) = mpsc::unbounded_channel();
        let (sender, home) = oneshot::channel();
        let reply = Reply::new(sampling.clone(), start, events, sender);
        let state = self.state.get_mut();
        let sequence = std::mem::take(&mut state.sequence);
        state.away = Some(Away { home, keep: None });
        let task = Task { sequence, work: Work::Generate(Box::new(reply)) };
        let number = self.engine.call(self.owner, call.into(), task);
        Ok(Generation::new(self, number, start, received))
    }

    /// Draws one reply of each stream, all beside each other, from the present end of the sequence,
    /// which stays as it is. What comes before is computed once.
    pub async fn samples(
        &self,
        streams: &[u64],
        sampling: &Sampling,
        call: impl Into<Call>,
    ) -> Result<Vec<Generated>, EngineError> {
        if streams.is_empty() {
            let (option, value) = ("streams", "empty".to_owned());
            let limit = "give one stream for each sample, at least one".to_owned();
            return Err(EngineError::BadSampling { option, value, limit });
        }
        let call = call.into();
        let mut forks = Vec::with_capacity(streams.len());
        for _ in streams {
            forks.push(self.fork().await?);
        }
        let mut replies = Vec::with_capacity(streams.len());
        for (fork, &stream) in forks.iter_mut().zip(streams) {
            let sampling = Sampling { stream, ..sampling.clone() };
            replies.push(fork.generate(&sampling, call.clone()).await?);
        }
        let mut samples = Vec::with_capacity(streams.len());
        for reply in replies {
            samples.push(reply.collect().await?);
        }
        Ok(samples)
    }

    /// Log-probabilities of `ids` as the continuation of the sequence, which stays as it is; each
    /// position names the `top` most probable tokens. Answers for every id, or with an error.
    pub async fn score(
        &mut self,
        ids: &[TokenId],
        top: usize,
        call: impl Into<Call>,
    ) -> Result<Scored, EngineError> {
        check_top(top, self.model())?;
        let first = self.len().await?;
        if first == 0 {
            return Err(EngineError::EmptySequence);
        }
        check_ids(self.model(), ids)?;
        self.check_length(first + ids.len())?;
        let Some((_, conditioned)) = ids.split_last() else {
            // Nothing is computed, and nothing is written into the ledger.
            return Ok(Scored { tokens: Vec::new(), cost: Cost::default() });
        };
        let serial = self.engine.serials.next();
        let mut sequence = self.state.get_mut().sequence.clone();
        sequence.append(conditioned, Birth::appended(serial));
        self.scored(sequence, ids.to_vec(), first, top, call.into()).await
    }

    /// Log-probabilities of the sequence's own ids from position `from` on, each given those before
    /// it; the first one that has any is at position 1.
    pub async fn statistics(
        &self,
        from: usize,
        top: usize,
        call: impl Into<Call>,
    ) -> Result<Scored, EngineError> {
        check_top(top, self.model())?;
        let mut sequence = self.settled().await?.sequence.clone();
        let length = sequence.len();
        if !(1..length).contains(&from) {
            return Err(EngineError::NoSuchPosition { position: from, length });
        }
        let ids = sequence.ids()[from..].to_vec();
        sequence.truncate(length - 1);
        self.scored(sequence, ids, from, top, call.into()).await
    }

    async fn scored(
        &self,
        sequence: Sequence,
        ids: Vec<TokenId>,
        first: usize,
        top: usize,
        call: Call,
    ) -> Result<Scored, EngineError> {
        let (answer, answered) = oneshot::channel();
        let scoring = Scoring { ids, first, top, tokens: Vec::new(), answer };
        self.engine.call(self.owner, call, Task { sequence, work: Work::Score(scoring) });
        match answered.await {
            Ok(result) => result,
            Err(_) => Err(self.engine.why_stopped().await),
        }
    }

    /// The present end of the sequence.
    pub async fn mark(&self) -> Result<Mark, EngineError> {
        let length = self.len().await?;
        self.mark_at(length).await
    }

    /// The end that the sequence had when it was `position` ids long.
    pub async fn mark_at(&self, position: usize) -> Result<Mark, EngineError> {
        let state = self.settled().await?;
        match state.sequence.births().get(..position) {
            Some(births) => Ok(Mark { position, last: births.last().copied() }),
            None => Err(EngineError::StaleMark { position }),
        }
    }

    /// Drops all ids after the mark; answers with how many.
    pub async fn rewind(&mut self, mark: Mark) -> Result<usize, EngineError> {
        let length = self.len().await?;
        let Mark { position, last } = mark;
        let sequence = &mut self.state.get_mut().sequence;
        let before = position.checked_sub(1).map(|before| sequence.births().get(before).copied());
        if before.is_some_and(|before| before != last) {
            return Err(EngineError::StaleMark { position });
        }
        sequence.truncate(position);
        Ok(length - position)
    }

    /// A second session with the same past, on the same pages; the two go on independently.
    pub async fn fork(&self) -> Result<Session, EngineError> {
        let sequence = self.settled().await?.sequence.clone();
        Ok(self.engine.session(self.owner, sequence))
    }

    /// The ids of the sequence.
    pub async fn ids(&self) -> Result<Vec<TokenId>, EngineError> {
        Ok(self.settled().await?.sequence.ids().to_vec())
    }

    /// How many ids the sequence has.
    pub async fn len(&self) -> Result<usize, EngineError> {
        Ok(self.settled().await?.sequence.len())
    }

    /// Whether the sequence has no ids.
    pub async fn is_empty(&self) -> Result<bool, EngineError> {
        Ok(self.len().await? == 0)
    }

    /// The state with the sequence at home: waits for the end of a reply that was dropped.
    async fn settled(&self) -> Result<tokio::sync::MutexGuard<'_, State>, EngineError> {
        let mut state = self.state.lock().await;
        if let Some(away) = &mut state.away {
            let Ok(mut sequence) = (&mut away.home).await else {
                return Err(self.engine.why_stopped().await);
            };
            sequence.truncate(away.keep.unwrap_or(sequence.len()));
            *state = State { sequence, away: None };
        }
        Ok(state)
    }

    fn check_length(&self, needed: usize) -> Result<(), EngineError> {
        let ModelInfo { name, context_length, .. } = self.model();
        if needed <= *context_length {
            return Ok(());
        }
        let (model, limit) = (name.clone(), *context_length);
        Err(EngineError::ContextOverflow { model, needed, limit })
    }

    /// Ends a reply of which the caller wants the sequence up to `keep`.
    pub(super) fn cancel(&mut self, call: u64, keep: usize) {
        if let Some(away) = &mut self.state.get_mut().away {
            away.keep = Some(keep);
        }
        self.engine.send(Command::Cancel { call });
    }

    pub(super) async fn why_stopped(&self) -> EngineError {
        self.engine.why_stopped().await
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
