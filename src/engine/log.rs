//! The engine's log: every call as it arrived, every decision of the scheduler, and what was read
//! from each row of logits, one JSON object a line. A log can be run again: the calls arrive at the
//! same places between the same steps, and every decision and every result is compared.

use std::collections::VecDeque;
use std::io::{BufRead, Write};

use tokio::sync::{mpsc, oneshot};

use super::hosted::Hosted;
use super::memory::Owner;
use super::message::{Arrived, Command};
use super::request::{Reply, Request, Scoring, Task, Work};
use super::sequence::{Birth, Sequence};
use super::session::worker_of;
use super::worker::Worker;
use super::{Call, EngineError, EngineOptions, Sampling, TokenStats};
use crate::model::AdapterId;
use crate::text::TokenId;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    Started {
        models: Vec<HostedModel>,
        options: EngineOptions,
    },
    Reply {
        call: u64,
        model: usize,
        adapter: Option<u32>,
        ids: Vec<TokenId>,
        /// Positions of ids that the model generated: `[first, end)`.
        generated: Vec<(usize, usize)>,
        sampling: Box<Sampling>,
    },
    Score {
        call: u64,
        model: usize,
        adapter: Option<u32>,
        ids: Vec<TokenId>,
        generated: Vec<(usize, usize)>,
        scored: Vec<TokenId>,
        first: usize,
        top: usize,
    },
    Cancelled {
        call: u64,
    },
    Overdue {
        call: u64,
    },
    CacheCleared,
    /// Calls with the positions of their rows; pages evicted so far.
    Forwarded {
        step: u64,
        model: usize,
        rows: Vec<(u64, usize, usize)>,
        evicted: u64,
    },
    Preempted {
        call: u64,
    },
    /// What was drawn or scored with the row after `position`: the id, and the bits of its
    /// log-probability and of the entropy.
    Read {
        call: u64,
        position: usize,
        id: TokenId,
        bits: (u32, u32),
    },
    Ended {
        call: u64,
        error: Option<String>,
    },
}

/// What a log says of a model.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct HostedModel {
    name: String,
    vocab_size: usize,
    context_length: usize,
    page_count: usize,
}

impl Event {
    fn started(worker: &Worker) -> Self {
        let models = worker.memory.models.iter().map(|model| HostedModel {
            name: model.info.name.clone(),
            vocab_size: model.info.vocab_size,
            context_length: model.info.context_length,
            page_count: model.info.page_count,
        });
        Self::Started { models: models.collect(), options: worker.options }
    }

    /// The line of a call that arrives.
    pub(super) fn arrival(call: u64, request: &Request) -> Self {
        let Owner { model, adapter } = request.owner;
        let adapter = adapter.map(|adapter| adapter.0);
        let ids = request.sequence.ids().to_vec();
        let generated = generated_runs(request.sequence.births());
        match &request.work {
            Work::Generate(reply) => {
                let sampling = Box::new(reply.sampling.clone());
                Self::Reply { call, model, adapter, ids, generated, sampling }
            }
            Work::Score(scoring) => Self::Score {
                call,
                model,
                adapter,
                ids,
                generated,
                scored: scoring.ids.clone(),
                first: scoring.first,
                top: scoring.top,
            },
        }
    }

    /// The line of a row of logits that was read.
    pub(super) fn read(call: u64, position: usize, stats: &TokenStats) -> Self {
        let bits = (stats.logprob.to_bits(), stats.entropy.to_bits());
        Self::Read { call, position, id: stats.id, bits }
    }

    /// Whether it comes from outside, so that a replay does it and does not wait for it.
    fn is_input(&self) -> bool {
        match self {
            Self::Reply { .. } | Self::Score { .. } | Self::CacheCleared => true,
            Self::Cancelled { .. } | Self::Overdue { .. } => true,
            Self::Started { .. }
            | Self::Forwarded { .. }
            | Self::Preempted { .. }
            | Self::Read { .. }
            | Self::Ended { .. } => false,
        }
    }
}

fn generated_runs(births: &[Birth]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (position, _) in births.iter().enumerate().filter(|(_, birth)| birth.is_draw()) {
        match runs.last_mut() {
            Some((_, end)) if *end == position => *end += 1,
            _ => runs.push((position, position + 1)),
        }
    }
    runs
}

/// Where the lines go. A line that cannot be written ends the log, not the engine.
pub(super) struct Log {
    sink: Sink,
    error: Option<String>,
}

enum Sink {
    Lines(Box<dyn Write + Send>),
    /// Of an engine that runs a log again: what it did since it was last asked.
    Kept(VecDeque<Event>),
}

impl Log {
    fn new(sink: Sink) -> Self {
        Self { sink, error: None }
    }

    pub(super) fn write(&mut self, event: Event) {
        match &mut self.sink {
            Sink::Kept(events) => events.push_back(event),
            Sink::Lines(sink) if self.error.is_none() => {
                let line = serde_json::to_string(&event).map_err(std::io::Error::other);
                let written = line.and_then(|line| writeln!(sink, "{line}"));
                if let Err(error) = written.and_then(|()| sink.flush()) {
                    self.error = Some(error.to_string());
                }
            }
            Sink::Lines(_) => {}
        }
    }

    /// Why the log ended before the engine, if it did.
    pub(super) fn error(&self) -> Option<String> {
        self.error.clone()
    }

    fn next(&mut self) -> Option<Event> {
        match &mut self.sink {
            Sink::Kept(events) => events.pop_front(),
            Sink::Lines(_) => None,
        }
    }
}

impl Worker {
    /// Begins a log.
    pub(super) fn log_to(&mut self, sink: Box<dyn Write + Send>) {
        self.begin_log(Sink::Lines(sink));
    }

    fn begin_log(&mut self, sink: Sink) {
        let mut log = Log::new(sink);
        log.write(Event::started(self));
        self.log = Some(log);
    }
}

/// Why a log could not be run again, or ran otherwise.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(
        "line {line} of the log cannot be read: {what}; a log is made by the engine, a line an event"
    )]
    Unreadable { line: usize, what: String },
    #[error("the log is of {logged}, and hosted are {hosted}; host what it was made with")]
    OtherModels { logged: String, hosted: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("line {line} ran otherwise:\n  logged   {logged}\n  replayed {replayed}")]
    Differs { line: usize, logged: String, replayed: String },
}

/// What a log that was run again agreed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Replayed {
    pub calls: usize,
    pub steps: usize,
    /// Rows of logits whose drawn or scored id and statistics were the same.
    pub rows_read: usize,
}

/// Runs a log again on models like those that it was made with. Every decision and result must be
/// the same.
pub fn replay(hosted: Vec<Hosted>, log: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut lines = log.lines().enumerate().map(|(index, line)| read_line(index + 1, line));
    let Some(first) = lines.next().transpose()? else {
        return Err(ReplayError::Unreadable { line: 1, what: "it is empty".to_owned() });
    };
    let (_, Event::Started { models, options }) = first else {
        let what = "it does not say what was hosted".to_owned();
        return Err(ReplayError::Unreadable { line: 1, what });
    };
    let mut worker = worker_of(hosted, options)?;
    worker.begin_log(Sink::Kept(VecDeque::new()));
    let mut replay = Replay { worker, agreed: Replayed::default() };
    let hosted = replay.next();
    if hosted.as_ref() != Some(&Event::Started { models: models.clone(), options }) {
        let (logged, hosted) = (format!("{models:?}"), format!("{hosted:?}"));
        return Err(ReplayError::OtherModels { logged, hosted });
    }
    for line in lines {
        let (line, event) = line?;
        replay.meet(line, event)?;
    }
    Ok(replay.agreed)
}

/// A log on its second run.
struct Replay {
    worker: Worker,
    agreed: Replayed,
}

impl Replay {
    /// Does what a line asks for, and compares what the engine then does with what it did.
    fn meet(&mut self, line: usize, logged: Event) -> Result<(), ReplayError> {
        let differs = |logged: &Event, replayed: Option<&Event>| {
            let text = |event| serde_json::to_string(event).unwrap_or_default();
            let replayed = replayed.map_or("nothing".to_owned(), text);
            Err(ReplayError::Differs { line, logged: text(logged), replayed })
        };
        let mut done = self.next();
        if logged.is_input() {
            if done.is_some() {
                return differs(&logged, done.as_ref());
            }
            self.put_in(line, &logged)?;
            done = self.next();
        } else if done.is_none() {
            self.worker.step();
            done = self.next();
        }
        if done.as_ref() != Some(&logged) {
            return differs(&logged, done.as_ref());
        }
        match logged {
            Event::Reply { .. } | Event::Score { .. } => self.agreed.calls += 1,
            Event::Forwarded { .. } => self.agreed.steps += 1,
            Event::Read { .. } => self.agreed.rows_read += 1,
            _ => {}
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Event> {
        self.worker.log.as_mut().and_then(Log::next)
    }

    fn put_in(&mut self, line: usize, input: &Event) -> Result<(), ReplayError> {
        match input {
            Event::Cancelled { call } => self.worker.handle(Command::Cancel { call: *call }),
            Event::Overdue { call } => self.worker.overdue(*call),
            Event::CacheCleared => self.worker.clear_cache(),
            arrival => {
                let known = self.worker.memory.models.len();
                let arrived = arrival.arrived(known).ok_or_else(|| {
                    let what = "a call that no engine would have taken".to_owned();
                    ReplayError::Unreadable { line, what }
                })?;
                self.worker.handle(Command::Call(Box::new(arrived)));
            }
        }
        Ok(())
    }
}

impl Event {
    /// The call that a line tells of, with nobody to answer to.
    fn arrived(&self, models: usize) -> Option<Arrived> {
        let (number, owner, sequence, work) = match self {
            Self::Reply { call, model, adapter, ids, generated, sampling } => {
                let (events, home) = (mpsc::unbounded_channel().0, oneshot::channel().0);
                let reply = Reply::new((**sampling).clone(), ids.len(), events, home);
                let owner = Owner { model: *model, adapter: adapter.map(AdapterId) };
                (*call, owner, sequence(ids, generated)?, Work::Generate(Box::new(reply)))
            }
            Self::Score { call, model, adapter, ids, generated, scored, first, top } => {
                if *first == 0 || first + scored.len() != ids.len() + 1 {
                    return None;
                }
                let answer = oneshot::channel().0;
                let (ids_scored, first, top) = (scored.clone(), *first, *top);
                let scoring = Scoring { ids: ids_scored, first, top, tokens: Vec::new(), answer };
                let owner = Owner { model: *model, adapter: adapter.map(AdapterId) };
                (*call, owner, sequence(ids, generated)?, Work::Score(scoring))
            }
            _ => return None,
        };
        if owner.model >= models || sequence.len() == 0 {
            return None;
        }
        let task = Task { sequence, work };
        Some(Arrived { number, request: Request::new(owner, Call::default(), task) })
    }
}

/// A sequence as it arrived, of which nothing is known to be computed.
fn sequence(ids: &[TokenId], generated: &[(usize, usize)]) -> Option<Sequence> {
    let mut sequence = Sequence::default();
    let mut serial = 0;
    let mut add = |sequence: &mut Sequence, end: usize, generated: bool| {
        serial += 1;
        let rest = ids.get(sequence.len()..end)?;
        let birth = if generated { Birth::drawn(serial) } else { Birth::appended(serial) };
        sequence.append(rest, birth);
        Some(())
    };
    for &(begin, end) in generated {
        add(&mut sequence, begin, false)?;
        add(&mut sequence, end, true)?;
    }
    add(&mut sequence, ids.len(), false)?;
    Some(sequence)
}

fn read_line(line: usize, text: std::io::Result<String>) -> Result<(usize, Event), ReplayError> {
    let unreadable = |what: String| ReplayError::Unreadable { line, what };
    let text = text.map_err(|error| unreadable(error.to_string()))?;
    let event = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    Ok((line, event))
}
