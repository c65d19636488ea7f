//! The engine's thread: it owns the models, their pages and the calls in flight. It takes the
//! messages that have come, makes one step, and begins again; without work it waits for a message.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use tokio::sync::watch;

use super::ledger::{Account, Ledger, LedgerSnapshot, ModelCounts};
use super::log::{Event, Log};
use super::memory::{Memory, Owner};
use super::message::{Arrived, Command};
use super::request::{Ending, Request, Work};
use super::session::Serials;
use super::{EngineError, EngineOptions, FinishReason};

/// The state of the engine's thread.
pub(super) struct Worker {
    pub(super) memory: Memory,
    /// Calls in flight by their numbers, the oldest first.
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) options: EngineOptions,
    pub(super) serials: Arc<Serials>,
    pub(super) ledger: Ledger,
    pub(super) log: Option<Log>,
    /// Rows of logits `[rows, vocab]`, the work space of a step.
    pub(super) logits: Vec<f32>,
    /// Steps so far.
    pub(super) clock: u64,
}

impl Worker {
    pub(super) fn new(memory: Memory, options: EngineOptions, serials: Arc<Serials>) -> Self {
        Self {
            memory,
            requests: BTreeMap::new(),
            options,
            serials,
            ledger: Ledger::default(),
            log: None,
            logits: Vec::new(),
            clock: 0,
        }
    }

    /// Runs until the last handle is gone or something breaks. Whoever still waits for an answer
    /// learns from `why` what happened: it is told before the answers' senders are dropped with
    /// the worker, and waited for by those whose sender was dropped earlier.
    pub(super) fn run_to_the_end(
        mut self,
        commands: &Receiver<Command>,
        why: &watch::Sender<Option<String>>,
    ) {
        let what = match catch_unwind(AssertUnwindSafe(|| self.run(commands))) {
            Ok(Ok(())) => "its last handle was dropped".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("its thread panicked: {}", panic_text(panic.as_ref())),
        };
        why.send_replace(Some(what));
    }

    fn run(&mut self, commands: &Receiver<Command>) -> Result<(), EngineError> {
        while self.take_messages(commands) {
            self.end_what_nobody_waits_for();
            self.step();
            if self.options.check_every_step {
                self.check()?;
            }
        }
        Ok(())
    }

    /// Handles the messages that have come; waits for one when there is nothing else to do.
    /// False when no handle is left.
    fn take_messages(&mut self, commands: &Receiver<Command>) -> bool {
        if self.requests.is_empty() {
            match commands.recv() {
                Ok(command) => self.handle(command),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Does what a message asks. An answer may find nobody waiting: that is not an error.
    pub(super) fn handle(&mut self, command: Command) {
        match command {
            Command::Call(arrived) => self.begin(*arrived),
            Command::Cancel { call } => {
                self.note(|| Event::Cancelled { call });
                self.end_call(call, Ok(()));
            }
            Command::Ledger { answer } => {
                let _ = answer.send(Ok(self.snapshot()));
            }
            Command::Pages { model, answer } => {
                let _ = answer.send(Ok(self.memory.models[model].page_use()));
            }
            Command::ClearCache { answer } => {
                self.clear_cache();
                let _ = answer.send(Ok(()));
            }
            Command::Check { answer } => {
                let _ = answer.send(self.check());
            }
        }
    }

    fn begin(&mut self, arrived: Arrived) {
        let Arrived { number, request } = arrived;
        self.note(|| Event::arrival(number, &request));
        let needed = request.sequence.len().div_ceil(crate::device::PAGE_POSITIONS);
        let most = self.memory.most_pages(request.owner.model);
        self.requests.insert(number, request);
        if needed > most {
            let error = self.exhausted(number, needed);
            self.end_call(number, Err(error));
        }
    }

    /// Ends calls whose callers are gone or whose time is over.
    fn end_what_nobody_waits_for(&mut self) {
        let now = Instant::now();
        let over: Vec<(u64, bool)> = self
            .requests
            .iter()
            .filter(|(_, request)| request.is_abandoned() || request.is_overdue(now))
            .map(|(&call, request)| (call, request.is_abandoned()))
            .collect();
        for (call, abandoned) in over {
            if abandoned {
                self.note(|| Event::Cancelled { call });
                self.end_call(call, Ok(()));
            } else {
                self.overdue(call);
            }
        }
    }

    /// Ends a call whose time is over: a reply with the tokens it has.
    pub(super) fn overdue(&mut self, call: u64) {
        self.note(|| Event::Overdue { call });
        let Some(request) = self.requests.get_mut(&call) else { return };
        let outcome = match &mut request.work {
            Work::Generate(reply) => {
                reply.ending = Some(Ending::plain(FinishReason::Deadline));
                Ok(())
            }
            Work::Score(_) => Err(EngineError::DeadlinePassed),
        };
        self.end_call(call, outcome);
    }

    /// Ends a call: writes it into the ledger, gives its sequence back and answers. A reply that
    /// has no ending was cancelled.
    pub(super) fn end_call(&mut self, call: u64, outcome: Result<(), EngineError>) {
        let Some(mut request) = self.requests.remove(&call) else { return };
        if request.admitted {
            let model = &mut self.memory.models[request.owner.model];
            model.release(&request.sequence, self.clock);
            if !self.options.keep_prefixes {
                model.clear_cache();
            }
        }
        let cost = request.cost_now();
        self.ledger.post(account(&request), cost);
        let error = outcome.as_ref().err().map(ToString::to_string);
        self.note(|| Event::Ended { call, error });
        match request.work {
            Work::Generate(reply) => {
                let cut = reply.ending.as_ref().map_or(0, |ending| ending.taken_back);
                request.sequence.truncate(request.sequence.len() - cut);
                reply.end(request.sequence, outcome, cost);
            }
            Work::Score(scoring) => scoring.end(outcome, cost),
        }
    }

    /// The error of a call that wants more pages than there are.
    pub(super) fn exhausted(&self, call: u64, needed: usize) -> EngineError {
        let model = self.requests.get(&call).map_or(0, |request| request.owner.model);
        EngineError::PagesExhausted {
            model: self.memory.models[model].info.name.clone(),
            needed,
            free: self.memory.within_reach(model),
            total: self.memory.most_pages(model),
        }
    }

    /// Gives up all prefixes that no call stands on.
    pub(super) fn clear_cache(&mut self) {
        self.note(|| Event::CacheCleared);
        self.memory.models.iter_mut().for_each(super::hosted::Model::clear_cache);
    }

    /// Writes into the log, if there is one.
    pub(super) fn note(&mut self, event: impl FnOnce() -> Event) {
        if let Some(log) = &mut self.log {
            log.write(event());
        }
    }

    fn snapshot(&self) -> LedgerSnapshot {
        let models = &self.memory.models;
        let names: Vec<&str> = models.iter().map(|model| model.info.name.as_str()).collect();
        let in_flight =
            self.requests.values().map(|request| (account(request), request.cost_now()));
        LedgerSnapshot {
            rows: self.ledger.rows(&names, in_flight),
            models: models
                .iter()
                .map(|model| ModelCounts {
                    model: model.info.name.clone(),
                    forwarded_rows: model.forwarded_rows,
                    copied_pages: model.copied_pages,
                    waste: model.forwarded.as_ref().map(|forwarded| forwarded.counted()),
                })
                .collect(),
            log_error: self.log.as_ref().and_then(Log::error),
        }
    }

    /// Counts the holders of every page anew and checks the ledger.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        let unbalanced = |what| EngineError::Unbalanced { what };
        for (index, model) in self.memory.models.iter().enumerate() {
            let pinned: Vec<_> = self
                .requests
                .values()
                .filter(|request| request.admitted && request.owner.model == index)
                .map(|request| &request.sequence)
                .collect();
            pinned.iter().try_for_each(|sequence| sequence.check()).map_err(unbalanced)?;
            model
                .tree
                .check(pinned.iter().map(|sequence| sequence.path.as_slice()))
                .and_then(|()| model.pool.check(model.tree.pages()))
                .map_err(unbalanced)?;
        }
        if let Some(limit) = self.memory.page_memory
            && self.memory.resident() > limit
        {
            let resident = self.memory.resident();
            return Err(unbalanced(format!("pages take {resident} bytes of {limit}")));
        }
        self.snapshot().check()
    }

    /// The owner of a call's rows.
    pub(super) fn owner(&self, call: u64) -> Option<Owner> {
        self.requests.get(&call).map(|request| request.owner)
    }
}

fn account(request: &Request) -> Account {
    let Owner { model, adapter } = request.owner;
    (model, adapter, request.call.tag.clone())
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
