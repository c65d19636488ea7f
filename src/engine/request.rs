//! Calls in flight: a reply that is being generated, a continuation that is being scored.

use std::collections::VecDeque;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::generation::{Finish, GeneratedToken, GenerationEvent, Stop};
use super::memory::Owner;
use super::sampler::ReplyCounts;
use super::sequence::Sequence;
use super::session::Scored;
use super::stops::{StopMatch, StopMatcher};
use super::{Call, Cost, EngineError, FinishReason, Sampling, TokenStats};
use crate::device::{PAGE_POSITIONS, PageId};
use crate::model::HiddenAt;
use crate::text::TokenId;

/// A call in flight.
pub(super) struct Request {
    pub(super) owner: Owner,
    pub(super) call: Call,
    pub(super) started: Instant,
    /// What it has cost so far; `seconds` is filled in at its end.
    pub(super) cost: Cost,
    /// The session's own for a reply, which gets it back at the end; of a score a copy that ends
    /// with the last id that something is conditioned on.
    pub(super) sequence: Sequence,
    /// How many ids of the sequence the call conditions on.
    pub(super) prompt: usize,
    /// How many positions of the sequence have been in pages during this call.
    pub(super) reached: usize,
    /// Up to here positions were in pages without the hidden rows that the call needs.
    pub(super) rerun: usize,
    /// Its sequence is pinned, and it takes part in steps.
    pub(super) admitted: bool,
    /// Where its rows of the last pass were written.
    pub(super) written: Written,
    pub(super) work: Work,
}

pub(super) enum Work {
    Generate(Box<Reply>),
    Score(Scoring),
}

impl Request {
    /// A call that begins now.
    pub(super) fn new(owner: Owner, call: Call, task: Task) -> Self {
        let Task { sequence, work } = task;
        Self {
            owner,
            call,
            started: Instant::now(),
            cost: Cost::default(),
            prompt: sequence.len(),
            sequence,
            reached: 0,
            rerun: 0,
            admitted: false,
            written: Written::default(),
            work,
        }
    }

    /// True when nobody waits for the answer any more. (A reply's caller says so by a message.)
    pub(super) fn is_abandoned(&self) -> bool {
        match &self.work {
            Work::Generate(_) => false,
            Work::Score(scoring) => scoring.answer.is_closed(),
        }
    }

    /// True when its time is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.call.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// The cost up to now, with the wall time.
    pub(super) fn cost_now(&self) -> Cost {
        Cost { seconds: self.started.elapsed().as_secs_f64(), ..self.cost }
    }

    /// Rows that it wants forwarded.
    pub(super) fn rows(&self) -> usize {
        self.sequence.len() - self.sequence.computed
    }

    /// It feeds back the token that it drew last, and nothing else.
    pub(super) fn decodes(&self) -> bool {
        self.rows() == 1 && self.sequence.len() > self.prompt && self.reached < self.sequence.len()
    }

    /// How many ids it may find computed by others. The rest it must forward itself: tokens that it
    /// drew, and, where hidden rows are not kept, the rows that it needs logits of.
    pub(super) fn adoptable(&self, keeps_hidden: bool) -> usize {
        let most = self.prompt.max(self.reached);
        match &self.work {
            _ if keeps_hidden => most,
            Work::Generate(_) => most.min(self.sequence.len() - 1),
            Work::Score(scoring) => most.min(scoring.first - 1 + scoring.tokens.len()),
        }
    }

    /// Notes positions that were found computed.
    pub(super) fn note_found(&mut self) {
        let found = self.sequence.computed;
        self.cost.cached_tokens += found.saturating_sub(self.reached) as u64;
        self.note_reached(found);
    }

    /// Notes how far the sequence has been in pages.
    pub(super) fn note_reached(&mut self, end: usize) {
        self.reached = self.reached.max(end);
        self.cost.prompt_tokens = self.reached.min(self.prompt) as u64;
    }
}

/// Where rows of one pass were written. The tree may put twins of their pages in their place, and
/// hidden rows that are not kept are known by where they were written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) step: u64,
    /// Position of the first row.
    pub(super) start: usize,
    /// The sequence's pages, those before the rows included.
    pub(super) table: Vec<PageId>,
}

impl Written {
    /// Where the hidden row of a position was written in this step, if it was.
    pub(super) fn hidden_at(&self, position: usize, step: u64) -> Option<HiddenAt> {
        let page = *self.table.get(position / PAGE_POSITIONS)?;
        let offset = position % PAGE_POSITIONS;
        (self.step == step && position >= self.start).then_some(HiddenAt { page, offset })
    }
}

/// What a call works on.
pub(super) struct Task {
    pub(super) sequence: Sequence,
    pub(super) work: Work,
}

/// Where a reply's tokens go.
pub(super) type Events = mpsc::UnboundedSender<Result<GenerationEvent, EngineError>>;

/// A reply that is being generated. Its tokens are in the sequence as soon as they are drawn; they
/// are sent once no stop string can take them back.
pub(super) struct Reply {
    pub(super) sampling: Sampling,
    /// Position of the reply's first token.
    pub(super) start: usize,
    pub(super) counts: ReplyCounts,
    /// How it ended by itself.
    pub(super) ending: Option<Ending>,
    events: Events,
    /// Where the sequence goes back to.
    home: oneshot::Sender<Sequence>,
    stops: StopMatcher,
    withheld: VecDeque<Withheld>,
    /// Length of the text of the tokens that were sent.
    sent_bytes: usize,
}

/// A token that a stop string might still take back.
struct Withheld {
    token: GeneratedToken,
    bytes: Vec<u8>,
    /// Byte of the reply at which the token ends.
    end: usize,
}

/// How a reply ended by itself.
pub(super) struct Ending {
    pub(super) reason: FinishReason,
    pub(super) stop: Option<Stop>,
    /// The last tokens drawn, which are not part of the reply.
    pub(super) cut: Vec<GeneratedToken>,
    /// How many of the cut tokens are in the sequence and must leave it.
    pub(super) taken_back: usize,
    /// Text of the first cut token that comes before the stop string.
    pub(super) tail: Vec<u8>,
}

impl Ending {
    /// An ending that cuts nothing.
    pub(super) fn plain(reason: FinishReason) -> Self {
        Self { reason, stop: None, cut: Vec::new(), taken_back: 0, tail: Vec::new() }
    }

    fn finish(self, cost: Cost) -> Finish {
        let Self { reason, stop, cut, tail, .. } = self;
        Finish { reason, stop, cut, tail, cost }
    }
}

impl Reply {
    pub(super) fn new(
        sampling: Sampling,
        start: usize,
        events: Events,
        home: oneshot::Sender<Sequence>,
    ) -> Self {
        let stops = StopMatcher::new(sampling.stop_strings.iter().map(String::as_str));
        Self {
            sampling,
            start,
            counts: ReplyCounts::new(),
            ending: None,
            events,
            home,
            stops,
            withheld: VecDeque::new(),
            sent_bytes: 0,
        }
    }

    /// Takes in a token that was drawn, with its text: sends what is sure to stay, and answers
    /// with the ending when a stop string is complete.
    pub(super) fn push(&mut self, token: GeneratedToken, bytes: Vec<u8>) -> Option<Ending> {
        *self.counts.entry(token.id()).or_default() += 1;
        let found = self.stops.feed(&bytes);
        let begin = self.withheld.back().map_or(self.sent_bytes, |last| last.end);
        self.withheld.push_back(Withheld { token, end: begin + bytes.len(), bytes });
        match found {
            Some(found) => Some(self.cut(found)),
            None => {
                self.send_up_to(self.stops.safe());
                None
            }
        }
    }

    /// Sends the tokens that end before the stop string and cuts off the others.
    fn cut(&mut self, found: StopMatch) -> Ending {
        self.send_up_to(found.start);
        let tail = self.withheld.front().map_or(Vec::new(), |first| {
            first.bytes[..found.start - (first.end - first.bytes.len())].to_vec()
        });
        let stop = Some(Stop::Text(self.sampling.stop_strings[found.which].clone()));
        let cut: Vec<GeneratedToken> =
            self.withheld.drain(..).map(|withheld| withheld.token).collect();
        Ending { reason: FinishReason::StopString, stop, taken_back: cut.len(), cut, tail }
    }

    /// Sends everything that is still withheld, for no stop string came, gives the sequence back,
    /// and sends the end.
    pub(super) fn end(mut self, sequence: Sequence, outcome: Result<(), EngineError>, cost: Cost) {
        self.send_up_to(usize::MAX);
        let ending = self.ending.take().unwrap_or(Ending::plain(FinishReason::Cancelled));
        // Nobody may be there any more to take it: then the session was dropped.
        let _ = self.home.send(sequence);
        let event = outcome.map(|()| GenerationEvent::Finish(ending.finish(cost)));
        let _ = self.events.send(event);
    }

    fn send_up_to(&mut self, byte: usize) {
        while let Some(first) = self.withheld.pop_front_if(|first| first.end <= byte) {
            self.sent_bytes = first.end;
            self.send(Ok(GenerationEvent::Token(first.token)));
        }
    }

    /// Sends an event; nobody may be listening any more, which is not an error.
    fn send(&self, event: Result<GenerationEvent, EngineError>) {
        let _ = self.events.send(event);
    }
}

/// Ids that are being scored: they follow each other in the call's sequence, whose last id is the
/// one before the last of them.
pub(super) struct Scoring {
    pub(super) ids: Vec<TokenId>,
    /// Position of the first of them, at least 1.
    pub(super) first: usize,
    /// How many of the most probable tokens each position's statistics name.
    pub(super) top: usize,
    /// Statistics of the ids so far.
    pub(super) tokens: Vec<TokenStats>,
    pub(super) answer: oneshot::Sender<Result<Scored, EngineError>>,
}

impl Scoring {
    /// Answers with all statistics or with an error.
    pub(super) fn end(self, outcome: Result<(), EngineError>, cost: Cost) {
        let complete = self.tokens.len() == self.ids.len();
        let answer = match outcome {
            Ok(()) if complete => Ok(Scored { tokens: self.tokens, cost }),
            Ok(()) => Err(EngineError::Cancelled),
            Err(error) => Err(error),
        };
        let _ = self.answer.send(answer);
    }
}
