//! The engine's thread: it owns the models, the sequences and the calls in flight. It takes the
//! messages that have come, makes one step, and begins again; without work it waits for a message.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};

use tokio::sync::watch;

use super::hosted::{Model, PageUse};
use super::ledger::{Account, Ledger, LedgerSnapshot, ModelCounts, Tag};
use super::message::Command;
use super::request::{Events, Reply, Request, Scoring, Work};
use super::sampler::Sampler;
use super::sequence::{Birth, Sequence};
use super::session::{Mark, SessionId};
use super::{Cost, EngineError, EngineOptions, Sampling};
use crate::model::AdapterId;
use crate::text::TokenId;

/// The state of the engine's thread.
pub(super) struct Worker {
    pub(super) models: Vec<Model>,
    pub(super) sessions: BTreeMap<SessionId, OpenSession>,
    /// Calls in flight, the next to be stepped first.
    pub(super) active: VecDeque<Request>,
    pub(super) options: EngineOptions,
    pub(super) sampler: Sampler,
    ledger: Ledger,
    commands: Receiver<Command>,
    /// The next number of a session, or of an append or draw.
    next_session: u64,
    next_birth: u64,
}

/// A session as the engine's thread holds it.
pub(super) struct OpenSession {
    pub(super) model: usize,
    pub(super) adapter: Option<AdapterId>,
    pub(super) sequence: Sequence,
    /// Where the last reply began, as long as it may still be cancelled.
    reply_start: Option<usize>,
}

impl Worker {
    pub(super) fn new(
        models: Vec<Model>,
        options: EngineOptions,
        commands: Receiver<Command>,
    ) -> Self {
        Self {
            models,
            sessions: BTreeMap::new(),
            active: VecDeque::new(),
            options,
            sampler: Sampler::default(),
            ledger: Ledger::default(),
            commands,
            next_session: 0,
            next_birth: 0,
        }
    }

    /// Runs until the last handle is gone or something breaks. Whoever still waits for an answer
    /// learns from `why` what happened: it is told before the answers' senders are dropped with
    /// the worker, and waited for by those whose sender was dropped earlier.
    pub(super) fn run_to_the_end(mut self, why: &watch::Sender<Option<String>>) {
        let what = match catch_unwind(AssertUnwindSafe(|| self.run())) {
            Ok(Ok(())) => "its last handle was dropped".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("its thread panicked: {}", panic_text(panic.as_ref())),
        };
        why.send_replace(Some(what));
    }

    fn run(&mut self) -> Result<(), EngineError> {
        while self.take_messages() {
            self.step();
            if self.options.check_every_step {
                self.check()?;
            }
        }
        Ok(())
    }

    /// Handles the messages that have come; waits for one when there is nothing else to do.
    /// False when no handle is left.
    fn take_messages(&mut self) -> bool {
        if self.active.is_empty() {
            match self.commands.recv() {
                Ok(command) => self.handle(command),
                Err(_) => return false,
            }
        }
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Does what a message asks. An answer may find nobody waiting: that is not an error.
    fn handle(&mut self, command: Command) {
        match command {
            Command::Open { model, adapter, answer } => {
                let _ = answer.send(self.open(model, adapter));
            }
            Command::Close { session } => self.close(session),
            Command::Append { session, ids, answer } => {
                let _ = answer.send(self.append(session, &ids));
            }
            Command::Generate { session, sampling, tag, events, answer } => {
                let _ = answer.send(self.begin_reply(session, sampling, tag, events));
            }
            Command::Cancel { session, received } => self.cancel(session, received),
            Command::Score { session, ids, top, tag, answer } => {
                let birth = self.birth(false);
                let scoring =
                    Scoring { ids, top, birth, scratch: None, tokens: Vec::new(), answer };
                self.begin_scoring(session, tag, scoring);
            }
            Command::Mark { session, position, answer } => {
                let open = self.settled(session);
                let _ = answer.send(open.and_then(|open| mark_in(&open.sequence, position)));
            }
            Command::Rewind { session, mark, answer } => {
                let _ = answer.send(self.rewind(session, mark));
            }
            Command::Fork { session, answer } => {
                let _ = answer.send(self.fork(session));
            }
            Command::Ids { session, answer } => {
                let _ = answer.send(self.settled(session).map(|open| open.sequence.ids().to_vec()));
            }
            Command::Len { session, answer } => {
                let _ = answer.send(self.settled(session).map(|open| open.sequence.len()));
            }
            Command::Ledger { answer } => {
                let _ = answer.send(Ok(self.snapshot()));
            }
            Command::Pages { model, answer } => {
                let pool = &self.models[model].pool;
                let _ = answer.send(Ok(PageUse { free: pool.free(), total: pool.total() }));
            }
            Command::Check { answer } => {
                let _ = answer.send(self.check());
            }
        }
    }

    fn open(&mut self, model: usize, adapter: Option<AdapterId>) -> Result<SessionId, EngineError> {
        let adapters = &self.models[model].adapters;
        if let Some(adapter) = adapter.filter(|adapter| !adapters.contains(adapter)) {
            let model = self.models[model].info.name.clone();
            return Err(EngineError::UnknownAdapter { model, adapter, known: adapters.len() });
        }
        Ok(self.admit(model, adapter, Sequence::default()))
    }

    fn admit(&mut self, model: usize, adapter: Option<AdapterId>, sequence: Sequence) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, OpenSession { model, adapter, sequence, reply_start: None });
        id
    }

    fn close(&mut self, session: SessionId) {
        self.end_call_of(session);
        if let Some(open) = self.sessions.remove(&session) {
            open.sequence.release(&mut self.models[open.model].pool);
        }
    }

    fn append(&mut self, session: SessionId, ids: &[TokenId]) -> Result<(), EngineError> {
        let birth = self.birth(false);
        let (open, model) = self.settled_with_model(session)?;
        model.check_ids(ids)?;
        model.check_length(open.sequence.len() + ids.len())?;
        open.sequence.append(ids, birth);
        Ok(())
    }

    fn begin_reply(
        &mut self,
        session: SessionId,
        sampling: Sampling,
        tag: Tag,
        events: Events,
    ) -> Result<(), EngineError> {
        let (open, model) = self.settled_with_model(session)?;
        let start = open.sequence.len();
        if start == 0 {
            return Err(EngineError::EmptySequence);
        }
        model.check_length(start + 1)?;
        open.reply_start = Some(start);
        let computed = open.sequence.computed();
        let reply = Reply::new(sampling, events, start);
        self.active.push_back(Request::new(session, tag, computed, Work::Generate(reply)));
        Ok(())
    }

    fn begin_scoring(&mut self, session: SessionId, tag: Tag, scoring: Scoring) {
        let ready = self.settled_with_model(session).and_then(|(open, model)| {
            if open.sequence.len() == 0 {
                return Err(EngineError::EmptySequence);
            }
            model.check_ids(&scoring.ids)?;
            model.check_length(open.sequence.len() + scoring.ids.len())?;
            Ok(open.sequence.computed())
        });
        match ready {
            // Without ids nothing is computed, and nothing is written into the ledger.
            Ok(_) if scoring.ids.is_empty() => scoring.end(Ok(()), Cost::default()),
            Ok(computed) => {
                let request = Request::new(session, tag, computed, Work::Score(scoring));
                self.active.push_back(request);
            }
            Err(error) => scoring.end(Err(error), Cost::default()),
        }
    }

    /// Ends a reply of which the caller has `received` tokens, and undoes the others.
    fn cancel(&mut self, session: SessionId, received: usize) {
        let start = self.sessions.get(&session).and_then(|open| open.reply_start);
        let Ok((open, model)) = self.settled_with_model(session) else { return };
        if let Some(start) = start {
            open.sequence.truncate(start + received, &mut model.pool);
        }
    }

    fn rewind(&mut self, session: SessionId, mark: Mark) -> Result<usize, EngineError> {
        let (open, model) = self.settled_with_model(session)?;
        let position = mark.position();
        let last = position.checked_sub(1);
        let known =
            last.is_none_or(|last| open.sequence.births().get(last).copied() == mark.last());
        if !known {
            return Err(EngineError::StaleMark { position });
        }
        let dropped = open.sequence.len() - position;
        open.sequence.truncate(position, &mut model.pool);
        Ok(dropped)
    }

    fn fork(&mut self, session: SessionId) -> Result<SessionId, EngineError> {
        let (open, model) = self.settled_with_model(session)?;
        let sequence = open.sequence.fork(&mut model.pool);
        let (model, adapter) = (open.model, open.adapter);
        Ok(self.admit(model, adapter, sequence))
    }

    /// A session without a call in flight: a message on a session ends the call that its caller
    /// gave up, and what that reply has drawn is then final.
    fn settled(&mut self, session: SessionId) -> Result<&mut OpenSession, EngineError> {
        self.settled_with_model(session).map(|(open, _)| open)
    }

    fn settled_with_model(
        &mut self,
        session: SessionId,
    ) -> Result<(&mut OpenSession, &mut Model), EngineError> {
        self.end_call_of(session);
        let (open, model) = self.session_and_model(session)?;
        open.reply_start = None;
        Ok((open, model))
    }

    /// A session and the model that it is open on.
    pub(super) fn session_and_model(
        &mut self,
        session: SessionId,
    ) -> Result<(&mut OpenSession, &mut Model), EngineError> {
        let open = self.sessions.get_mut(&session).ok_or_else(|| closed(session))?;
        let model = &mut self.models[open.model];
        Ok((open, model))
    }

    fn end_call_of(&mut self, session: SessionId) {
        if let Some(at) = self.active.iter().position(|request| request.session == session)
            && let Some(request) = self.active.remove(at)
        {
            self.end_call(request, Ok(()));
        }
    }

    /// Writes the cost of a call that has ended into the ledger.
    pub(super) fn post(&mut self, request: &Request, cost: Cost) {
        if let Some(account) = self.account_of(request) {
            self.ledger.post(account, cost);
        }
    }

    fn account_of(&self, request: &Request) -> Option<Account> {
        let open = self.sessions.get(&request.session)?;
        Some((open.model, open.adapter, request.tag.clone()))
    }

    /// The birth of what is appended or drawn next.
    pub(super) fn birth(&mut self, generated: bool) -> Birth {
        self.next_birth += 1;
        Birth { serial: self.next_birth, generated }
    }

    fn snapshot(&self) -> LedgerSnapshot {
        let names: Vec<&str> = self.models.iter().map(|model| model.info.name.as_str()).collect();
        let in_flight = self
            .active
            .iter()
            .filter_map(|request| Some((self.account_of(request)?, request.cost_now())));
        LedgerSnapshot {
            rows: self.ledger.rows(&names, in_flight),
            models: self
                .models
                .iter()
                .map(|model| ModelCounts {
                    model: model.info.name.clone(),
                    forwarded_rows: model.forwarded_rows,
                    waste: model.trie.as_ref().map(|trie| trie.counted()),
                })
                .collect(),
        }
    }

    /// Counts every page's holders anew and checks the ledger.
    fn check(&self) -> Result<(), EngineError> {
        for (index, model) in self.models.iter().enumerate() {
            let open = self.sessions.values().filter(|open| open.model == index);
            let scratch = self.active.iter().filter_map(|request| match &request.work {
                Work::Score(scoring) if self.sessions[&request.session].model == index => {
                    scoring.scratch.as_ref()
                }
                _ => None,
            });
            let sequences: Vec<&Sequence> =
                open.map(|open| &open.sequence).chain(scratch).collect();
            sequences
                .iter()
                .try_for_each(|sequence| sequence.check())
                .and_then(|()| model.pool.check(sequences.iter().map(|sequence| sequence.pages())))
                .map_err(|what| EngineError::Unbalanced { what })?;
        }
        self.snapshot().check()
    }
}

/// A session was named that is not open: handles close theirs only when they are dropped.
pub(super) fn closed(session: SessionId) -> EngineError {
    EngineError::Unbalanced { what: format!("session {} was used after its close", session.0) }
}

/// The end of a sequence as a mark: the present one, or that at a position within it.
fn mark_in(sequence: &Sequence, position: Option<usize>) -> Result<Mark, EngineError> {
    let position = position.unwrap_or(sequence.len());
    match sequence.births().get(..position) {
        Some(births) => Ok(Mark::new(position, births.last().copied())),
        None => Err(EngineError::StaleMark { position }),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
