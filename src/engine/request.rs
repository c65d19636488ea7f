//! Calls in flight: a reply that is being generated, a continuation that is being scored.

use std::collections::VecDeque;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::generation::{Finish, GeneratedToken, GenerationEvent, Stop};
use super::ledger::Tag;
use super::sampler::ReplyCounts;
use super::sequence::{Birth, Sequence};
use super::session::{Scored, SessionId};
use super::stops::{StopMatch, StopMatcher};
use super::{Cost, EngineError, FinishReason, Sampling, TokenStats};
use crate::text::TokenId;

/// A call in flight.
pub(super) struct Request {
    pub(super) session: SessionId,
    pub(super) tag: Tag,
    pub(super) started: Instant,
    /// What it has cost so far; `seconds` is filled in at its end.
    pub(super) cost: Cost,
    pub(super) work: Work,
}

pub(super) enum Work {
    Generate(Reply),
    Score(Scoring),
}

impl Request {
    /// A call that begins now on a sequence of which `computed` positions are in pages.
    pub(super) fn new(session: SessionId, tag: Tag, computed: usize, work: Work) -> Self {
        let cached = computed as u64;
        let cost = Cost { prompt_tokens: cached, cached_tokens: cached, ..Cost::default() };
        Self { session, tag, started: Instant::now(), cost, work }
    }

    /// True when nobody waits for the answer any more. (A reply's caller says so by a message.)
    pub(super) fn is_abandoned(&self) -> bool {
        match &self.work {
            Work::Generate(_) => false,
            Work::Score(scoring) => scoring.answer.is_closed(),
        }
    }

    /// The cost up to now, with the wall time.
    pub(super) fn cost_now(&self) -> Cost {
        Cost { seconds: self.started.elapsed().as_secs_f64(), ..self.cost }
    }
}

/// Where a reply's tokens go.
pub(super) type Events = mpsc::UnboundedSender<Result<GenerationEvent, EngineError>>;

/// A reply that is being generated. Its tokens are in the sequence as soon as they are drawn; they
/// are sent once no stop string can take them back.
pub(super) struct Reply {
    pub(super) sampling: Sampling,
    /// Position of the reply's first token.
    pub(super) start: usize,
    pub(super) prompt_is_complete: bool,
    pub(super) counts: ReplyCounts,
    /// How it ended by itself.
    pub(super) ending: Option<Ending>,
    events: Events,
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
    /// Text of the first cut token that comes before the stop string.
    pub(super) tail: Vec<u8>,
}

impl Ending {
    /// An ending that cuts nothing.
    pub(super) fn plain(reason: FinishReason) -> Self {
        Self { reason, stop: None, cut: Vec::new(), tail: Vec::new() }
    }

    fn finish(self, cost: Cost) -> Finish {
        let Self { reason, stop, cut, tail } = self;
        Finish { reason, stop, cut, tail, cost }
    }
}

impl Reply {
    pub(super) fn new(sampling: Sampling, events: Events, start: usize) -> Self {
        let stops = StopMatcher::new(sampling.stop_strings.iter().map(String::as_str));
        Self {
            sampling,
            start,
            prompt_is_complete: false,
            counts: ReplyCounts::new(),
            ending: None,
            events,
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
        Ending {
            reason: FinishReason::StopString,
            stop: Some(Stop::Text(self.sampling.stop_strings[found.which].clone())),
            cut: self.withheld.drain(..).map(|withheld| withheld.token).collect(),
            tail,
        }
    }

    /// Sends everything that is still withheld, for no stop string came, and then the end.
    pub(super) fn end(mut self, outcome: Result<(), EngineError>, cost: Cost) {
        self.send_up_to(usize::MAX);
        let ending = self.ending.take().unwrap_or(Ending::plain(FinishReason::Cancelled));
        self.send(outcome.map(|()| GenerationEvent::Finish(ending.finish(cost))));
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

/// A continuation that is being scored, on a scratch sequence that shares the session's pages.
pub(super) struct Scoring {
    pub(super) ids: Vec<TokenId>,
    /// How many of the most probable tokens each position's statistics name.
    pub(super) top: usize,
    /// Of the ids on the scratch sequence.
    pub(super) birth: Birth,
    /// Forked from the session's sequence once that is computed.
    pub(super) scratch: Option<Sequence>,
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
