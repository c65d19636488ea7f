//! One step of the engine: the next call's rows → forward → sample → answer.
//!
//! Calls take turns, one step each: a chunk of a prompt, one token of a reply, or the statistics
//! of a few scored positions. So a long prompt keeps the others waiting for one chunk at most.
//!
//! What another open session has computed of the same ids is taken over, not computed again: of
//! several forks of a session that was not computed yet, each row is forwarded by one.

use super::generation::{GeneratedToken, Stop};
use super::request::{Ending, Reply, Request, Scoring, Work};
use super::sampler::Sampler;
use super::sequence::{Birth, Sequence};
use super::session::SessionId;
use super::worker::{Worker, closed};
use super::{Cost, EngineError, FinishReason};
use crate::model::AdapterId;

/// Scored positions whose logits are held at once.
const SCORED_AT_ONCE: usize = 32;

/// Where a call is after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    GoesOn,
    Ended,
}

/// Whose keys and values a sequence's are: a model's index and an adapter.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    model: usize,
    adapter: Option<AdapterId>,
}

impl Worker {
    /// Steps the call whose turn it is.
    pub(super) fn step(&mut self) {
        let Some(mut request) = self.active.pop_front() else { return };
        if request.is_abandoned() {
            return self.end_call(request, Ok(()));
        }
        let Request { session, cost, work, .. } = &mut request;
        let progress = match work {
            Work::Generate(reply) => self.step_reply(*session, cost, reply),
            Work::Score(scoring) => self.step_scoring(*session, cost, scoring),
        };
        match progress {
            Ok(Progress::GoesOn) => self.active.push_back(request),
            Ok(Progress::Ended) => self.end_call(request, Ok(())),
            Err(error) => self.end_call(request, Err(error)),
        }
    }

    /// A chunk of the prompt, or the last token fed back; then a draw, if the prompt is complete.
    fn step_reply(
        &mut self,
        session: SessionId,
        cost: &mut Cost,
        reply: &mut Reply,
    ) -> Result<Progress, EngineError> {
        if reply.prompt_is_complete {
            self.feed_back(session, cost)?;
        } else {
            reply.prompt_is_complete = self.prefill_session(session, cost)?;
        }
        if !reply.prompt_is_complete {
            return Ok(Progress::GoesOn);
        }
        reply.ending = self.draw(session, cost, reply)?;
        Ok(if reply.ending.is_some() { Progress::Ended } else { Progress::GoesOn })
    }

    /// Forwards the token that was drawn last.
    fn feed_back(&mut self, session: SessionId, cost: &mut Cost) -> Result<(), EngineError> {
        let (open, model) = self.session_and_model(session)?;
        let end = open.sequence.len();
        let forwarded = model.forward(&mut open.sequence, open.adapter, end)?;
        cost.fed_back_tokens += forwarded.generated;
        Ok(())
    }

    /// Draws the next token of a reply and takes it into the sequence.
    fn draw(
        &mut self,
        session: SessionId,
        cost: &mut Cost,
        reply: &mut Reply,
    ) -> Result<Option<Ending>, EngineError> {
        let birth = self.birth(true);
        let mut sampler = std::mem::take(&mut self.sampler);
        let drawn = self.draw_token(session, reply, &mut sampler);
        self.sampler = sampler;
        let token = drawn?;
        cost.generated_tokens += 1;
        self.take_in(session, reply, token, birth)
    }

    fn draw_token(
        &mut self,
        session: SessionId,
        reply: &Reply,
        sampler: &mut Sampler,
    ) -> Result<GeneratedToken, EngineError> {
        let (open, model) = self.session_and_model(session)?;
        let position = open.sequence.len();
        model.compute_logits(&open.sequence, position - 1..position)?;
        let softmax = model.softmax(0, position - 1)?;
        let logits = model.logits(0);
        let id = sampler.draw(logits, &reply.sampling, &reply.counts, position);
        let stats = softmax.stats(logits, id, reply.sampling.top_logprobs);
        Ok(GeneratedToken { position, stats })
    }

    /// Takes a drawn token into the sequence, unless it stops the reply.
    fn take_in(
        &mut self,
        session: SessionId,
        reply: &mut Reply,
        token: GeneratedToken,
        birth: Birth,
    ) -> Result<Option<Ending>, EngineError> {
        let (open, model) = self.session_and_model(session)?;
        let id = token.id();
        if model.stop_ids.contains(&id) || reply.sampling.stop_ids.contains(&id) {
            return Ok(Some(Ending {
                stop: Some(Stop::Id(id)),
                cut: vec![token],
                ..Ending::plain(FinishReason::StopId)
            }));
        }
        open.sequence.append(&[id], birth);
        if let Some(ending) = reply.push(token, model.tokens.token_bytes(id)) {
            let keep = open.sequence.len() - ending.cut.len();
            open.sequence.truncate(keep, &mut model.pool);
            return Ok(Some(ending));
        }
        let length = open.sequence.len();
        let reason = if length - reply.start == reply.sampling.max_tokens {
            FinishReason::MaxTokens
        } else if length == model.info.context_length {
            FinishReason::ContextFull
        } else {
            return Ok(None);
        };
        Ok(Some(Ending::plain(reason)))
    }

    /// A chunk of the prompt, or the statistics of the next few ids.
    fn step_scoring(
        &mut self,
        session: SessionId,
        cost: &mut Cost,
        scoring: &mut Scoring,
    ) -> Result<Progress, EngineError> {
        let Some(scratch) = &mut scoring.scratch else {
            if self.prefill_session(session, cost)? {
                let (open, model) = self.session_and_model(session)?;
                let mut scratch = open.sequence.fork(&mut model.pool);
                // Nothing is conditioned on the last id.
                let conditioned = scoring.ids.len().saturating_sub(1);
                scratch.append(&scoring.ids[..conditioned], scoring.birth);
                scoring.scratch = Some(scratch);
            }
            return Ok(Progress::GoesOn);
        };
        let owner = self.owner_of(session)?;
        if !self.prefill(owner, scratch, cost)? {
            return Ok(Progress::GoesOn);
        }
        let model = &mut self.models[owner.model];
        let done = scoring.tokens.len();
        let ids = &scoring.ids[done..scoring.ids.len().min(done + SCORED_AT_ONCE)];
        // The id at `done` follows from the position before it.
        let first = scratch.len() - scoring.ids.len() + done;
        model.compute_logits(scratch, first..first + ids.len())?;
        for (row, &id) in ids.iter().enumerate() {
            let softmax = model.softmax(row, first + row)?;
            scoring.tokens.push(softmax.stats(model.logits(row), id, scoring.top));
        }
        if scoring.tokens.len() < scoring.ids.len() {
            return Ok(Progress::GoesOn);
        }
        Ok(Progress::Ended)
    }

    /// Brings a session's sequence forward by a chunk; true when all of it is computed.
    fn prefill_session(
        &mut self,
        session: SessionId,
        cost: &mut Cost,
    ) -> Result<bool, EngineError> {
        let owner = self.owner_of(session)?;
        let (open, _) = self.session_and_model(session)?;
        let mut sequence = std::mem::take(&mut open.sequence);
        let complete = self.prefill(owner, &mut sequence, cost);
        let (open, _) = self.session_and_model(session)?;
        open.sequence = sequence;
        complete
    }

    /// Brings a sequence forward by what another session has computed of it, then by a chunk of
    /// rows; true when all of it is computed.
    fn prefill(
        &mut self,
        owner: Owner,
        sequence: &mut Sequence,
        cost: &mut Cost,
    ) -> Result<bool, EngineError> {
        let length = sequence.len();
        if sequence.computed() < length {
            self.adopt(owner, sequence, cost);
            cost.prompt_tokens = sequence.computed() as u64;
        }
        if sequence.computed() < length {
            let end = length.min(sequence.computed() + self.options.prefill_rows);
            let forwarded = self.models[owner.model].forward(sequence, owner.adapter, end)?;
            cost.computed_tokens += forwarded.appended;
            cost.cached_tokens += forwarded.generated;
            cost.fed_back_tokens += forwarded.generated;
            cost.prompt_tokens = sequence.computed() as u64;
        }
        Ok(sequence.computed() == length)
    }

    /// Takes over the pages of the open session that has computed most of this sequence's ids.
    fn adopt(&mut self, owner: Owner, sequence: &mut Sequence, cost: &mut Cost) {
        let lender = self
            .sessions
            .values()
            .filter(|open| owner == Owner { model: open.model, adapter: open.adapter })
            .filter_map(|open| Some((sequence.could_adopt(&open.sequence)?, &open.sequence)))
            .max_by_key(|&(common, _)| common);
        if let Some((common, lender)) = lender {
            cost.cached_tokens += (common - sequence.computed()) as u64;
            let lent = lender.lend(common);
            sequence.adopt(&lent, &mut self.models[owner.model].pool);
        }
    }

    fn owner_of(&self, session: SessionId) -> Result<Owner, EngineError> {
        let open = self.sessions.get(&session).ok_or_else(|| closed(session))?;
        Ok(Owner { model: open.model, adapter: open.adapter })
    }

    /// Ends a call: writes it into the ledger, gives its scratch pages back and answers. A reply
    /// that has no ending was cancelled.
    pub(super) fn end_call(&mut self, request: Request, outcome: Result<(), EngineError>) {
        let cost = request.cost_now();
        self.post(&request, cost);
        match request.work {
            Work::Generate(reply) => reply.end(outcome, cost),
            Work::Score(mut scoring) => {
                if let (Some(scratch), Ok(owner)) =
                    (scoring.scratch.take(), self.owner_of(request.session))
                {
                    scratch.release(&mut self.models[owner.model].pool);
                }
                scoring.end(outcome, cost);
            }
        }
    }
}
