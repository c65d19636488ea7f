//! One step of the engine: admit calls → choose rows → forward → logits → sample → answer.
//!
//! A step makes one forward pass for each model that has work: one row of every reply in the
//! making, and chunks of prompts beside them (`schedule`). What is in the prefix tree of a call's ids
//! is taken over, not computed again.
//!
//! When pages run out, prefixes that nobody stands on are given up; then the youngest call gives up
//! its place, to resume where it was once there is room. The oldest call can thus always go on,
//! until it alone needs more than there is.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::generation::{GeneratedToken, Stop};
use super::hosted::Model;
use super::log::Event;
use super::memory::Owner;
use super::prefix::Prefix;
use super::request::{Ending, Request, Work, Written};
use super::sampler::Sampler;
use super::schedule::{Candidate, Chunk, Limits, choose};
use super::sequence::Birth;
use super::statistics::{NotFinite, Softmax};
use super::worker::Worker;
use super::{EngineError, FinishReason, TokenStats};
use crate::device::{PAGE_POSITIONS, PageId};
use crate::model::{Batch, HiddenAt, ModelError, Row};

/// Rows of logits that are held at once.
pub(super) const LOGITS_ROWS: usize = 64;

/// Rows of one call in a forward pass: positions `start..end` of its sequence.
struct Planned {
    call: u64,
    start: usize,
    end: usize,
    /// Pages behind those of the sequence.
    fresh: Vec<PageId>,
}

/// A row of logits that a call wants: that after `position`.
#[derive(Clone, Copy)]
struct Wanted {
    call: u64,
    position: usize,
    /// Which id of a score follows; a reply draws one.
    scored: Option<usize>,
}

impl Worker {
    /// Makes one step of every model that has work.
    pub(super) fn step(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        self.clock += 1;
        self.admit();
        for model in 0..self.memory.models.len() {
            self.step_model(model);
        }
    }

    fn step_model(&mut self, model: usize) {
        let chunks = self.choose_rows(model);
        let planned = self.plan(&chunks);
        if !planned.is_empty() {
            let (step, evicted) = (self.clock, self.memory.evicted);
            let rows = || planned.iter().map(|plan| (plan.call, plan.start, plan.end)).collect();
            self.note(|| Event::Forwarded { step, model, rows: rows(), evicted });
        }
        self.forward(model, planned);
        let wanted = self.wanted_logits(model);
        for wanted in wanted.chunks(LOGITS_ROWS) {
            self.read_logits(model, wanted);
        }
    }

    fn calls_of(&self, model: usize) -> impl Iterator<Item = (&u64, &Request)> {
        self.requests.iter().filter(move |(_, request)| request.owner.model == model)
    }

    /// Lets calls take part, the oldest first, as long as there is room for what they need. Where
    /// models share their memory, a call that waits for room is not overtaken by another model's.
    fn admit(&mut self) {
        let models = self.memory.models.len();
        let shared = self.memory.page_memory.is_some();
        let arena = |model: usize| if shared { 0 } else { model };
        let (mut running, mut in_arena) = (vec![0; models], vec![0; models]);
        for request in self.requests.values().filter(|request| request.admitted) {
            running[request.owner.model] += 1;
            in_arena[arena(request.owner.model)] += 1;
        }
        let mut closed = vec![false; models];
        let waiting = self.requests.iter().filter(|(_, request)| !request.admitted);
        let waiting: Vec<(u64, usize)> =
            waiting.map(|(&call, request)| (call, request.owner.model)).collect();
        for (call, model) in waiting {
            let arena = arena(model);
            if closed[arena] || running[model] >= self.options.max_sequences {
                continue;
            }
            if in_arena[arena] > 0 && !self.fits(call, in_arena[arena]) {
                closed[arena] = true;
                continue;
            }
            self.resume(call);
            running[model] += 1;
            in_arena[arena] += 1;
        }
    }

    /// Whether there is room for a call's ids and for a page more of every call that runs.
    fn fits(&mut self, call: u64, running: usize) -> bool {
        let Some(request) = self.requests.get(&call) else { return false };
        let Owner { model, adapter } = request.owner;
        let tree = &mut self.memory.models[model].tree;
        let shared = tree.pinned_pages(adapter, request.sequence.ids());
        let needed = (request.sequence.len() + 1).div_ceil(PAGE_POSITIONS) - shared;
        needed + running <= self.memory.within_reach(model)
    }

    /// Pins what is computed of a call's ids.
    fn resume(&mut self, call: u64) {
        let Some(request) = self.requests.get_mut(&call) else { return };
        let Owner { model, adapter } = request.owner;
        let model = &mut self.memory.models[model];
        let limit = request.adoptable(model.decoder.keeps_hidden());
        model.resume(&mut request.sequence, adapter, limit);
        request.note_found();
        request.admitted = true;
    }

    /// What the calls of a model want forwarded, after taking over what others have computed.
    fn choose_rows(&mut self, model: usize) -> Vec<Chunk> {
        let mut candidates = Vec::new();
        let hosted = &mut self.memory.models[model];
        let keeps = hosted.decoder.keeps_hidden();
        for (&call, request) in &mut self.requests {
            if request.owner.model != model || !request.admitted {
                continue;
            }
            let adapter = request.owner.adapter;
            let limit = request.adoptable(keeps);
            if request.sequence.computed < limit {
                hosted.follow(&mut request.sequence, adapter, limit);
                request.note_found();
            }
            if !keeps {
                // Keys and values that are there, but without the hidden rows that it needs.
                let most = request.adoptable(true);
                request.rerun = hosted.reach(&request.sequence, adapter, most);
            }
            let rows = request.rows();
            if rows > 0 {
                let id = request.sequence.ids()[request.sequence.computed];
                let next = hosted.prefix(&request.sequence, adapter).then(id);
                candidates.push(Candidate { call, rows, decodes: request.decodes(), next });
            }
        }
        let limits =
            Limits { step_rows: self.options.step_rows, prefill_rows: self.options.prefill_rows };
        choose(&candidates, limits, self.clock)
    }

    /// Finds pages for the chosen rows, the oldest call's first.
    fn plan(&mut self, chunks: &[Chunk]) -> Vec<Planned> {
        let mut by_age = chunks.to_vec();
        by_age.sort_unstable_by_key(|chunk| chunk.call);
        let mut planned: Vec<Planned> = Vec::new();
        for chunk in by_age {
            if let Some(ready) = self.plan_one(chunk, &mut planned) {
                planned.push(ready);
            }
        }
        planned
    }

    /// Finds pages for a call's rows: makes others give up theirs, or fewer rows do, or none.
    fn plan_one(&mut self, chunk: Chunk, planned: &mut Vec<Planned>) -> Option<Planned> {
        let Chunk { call, mut rows } = chunk;
        loop {
            let step = self.clock;
            let request = self.requests.get_mut(&call).filter(|request| request.admitted)?;
            let start = request.sequence.computed;
            let end = start + rows;
            let room = self.memory.make_room(request.owner, &mut request.sequence, end, step);
            if let Some(fresh) = room {
                return Some(Planned { call, start, end, fresh });
            }
            match self.youngest_beside(call) {
                Some(youngest) => {
                    let victim = youngest.max(call);
                    self.preempt(victim, planned);
                    if victim == call {
                        return None;
                    }
                }
                // Alone: as many rows as there are pages for.
                None if rows > 1 => rows = rows.div_ceil(2),
                None => {
                    let error = self.exhausted(call, 1);
                    self.end_call(call, Err(error));
                    return None;
                }
            }
        }
    }

    /// The youngest other call that stands on pages which could be this one's.
    fn youngest_beside(&self, call: u64) -> Option<u64> {
        let model = self.owner(call)?.model;
        let shared = self.memory.page_memory.is_some();
        let others = self.requests.iter().filter(|&(&other, request)| {
            other != call && request.admitted && (shared || request.owner.model == model)
        });
        others.map(|(&other, _)| other).next_back()
    }

    /// Makes a call give up its place.
    fn preempt(&mut self, call: u64, planned: &mut Vec<Planned>) {
        self.note(|| Event::Preempted { call });
        if let Some(at) = planned.iter().position(|ready| ready.call == call) {
            self.drop_plan(planned.remove(at));
        }
        if let Some(request) = self.requests.get_mut(&call) {
            let model = &mut self.memory.models[request.owner.model];
            model.release(&request.sequence, self.clock);
            request.admitted = false;
        }
    }

    fn drop_plan(&mut self, plan: Planned) {
        if let Some(owner) = self.owner(plan.call) {
            let pool = &mut self.memory.models[owner.model].pool;
            plan.fresh.into_iter().for_each(|page| pool.give(page));
        }
    }

    /// Forwards planned rows in one pass. Where the decoder refuses them, each call's by itself, so
    /// that one call's fault is not the others'.
    fn forward(&mut self, model: usize, planned: Vec<Planned>) {
        if planned.is_empty() {
            return;
        }
        match self.run_batch(model, &planned) {
            Ok(bad) => self.take_rows(model, planned, &bad),
            Err(error) if planned.len() == 1 => self.refuse(model, planned, &error),
            Err(_) => {
                for plan in planned {
                    let alone = vec![plan];
                    match self.run_batch(model, &alone) {
                        Ok(bad) => self.take_rows(model, alone, &bad),
                        Err(error) => self.refuse(model, alone, &error),
                    }
                }
            }
        }
    }

    fn refuse(&mut self, model: usize, planned: Vec<Planned>, error: &ModelError) {
        let failed = self.memory.models[model].failed(error);
        for plan in planned {
            let call = plan.call;
            self.drop_plan(plan);
            self.end_call(call, Err(failed.clone()));
        }
    }

    fn run_batch(&mut self, model: usize, planned: &[Planned]) -> Result<Vec<usize>, ModelError> {
        let hosted = &mut self.memory.models[model];
        let mut rows = Vec::new();
        let mut tables: Vec<Vec<PageId>> = Vec::with_capacity(planned.len());
        for (slot, plan) in planned.iter().enumerate() {
            let request = &self.requests[&plan.call];
            let mut table = hosted.table(&request.sequence);
            table.extend(&plan.fresh);
            tables.push(table);
            let adapter = request.owner.adapter;
            rows.extend((plan.start..plan.end).map(|position| {
                let token = request.sequence.ids()[position];
                Row { slot, position, token, adapter }
            }));
        }
        let borrowed: Vec<&[PageId]> = tables.iter().map(Vec::as_slice).collect();
        let bad = hosted.decoder.forward(&Batch { rows: &rows, tables: &borrowed })?;
        hosted.forwarded_rows += rows.len() as u64;
        for (plan, table) in planned.iter().zip(tables) {
            if let Some(request) = self.requests.get_mut(&plan.call) {
                request.written = Written { step: self.clock, start: plan.start, table };
            }
        }
        Ok(bad)
    }

    /// Takes forwarded rows into the books and into the prefix tree; `bad` ones end their calls.
    fn take_rows(&mut self, model: usize, planned: Vec<Planned>, bad: &[usize]) {
        let mut in_pass = HashSet::new();
        let mut first_row = 0;
        for plan in planned {
            let Planned { call, start, end, fresh } = plan;
            let rows = first_row..first_row + (end - start);
            first_row = rows.end;
            let damaged = bad.iter().find(|row| rows.contains(row)).map(|row| row - rows.start);
            let good = damaged.map_or(end, |row| start + row);
            let Some(request) = self.requests.get_mut(&call) else { continue };
            let hosted = &mut self.memory.models[model];
            count_rows(request, hosted, end, good, &mut in_pass);
            let adapter = request.owner.adapter;
            hosted.place(&mut request.sequence, adapter, good, fresh, self.clock);
            if damaged.is_some() {
                let (model, position) = (hosted.info.name.clone(), good);
                self.end_call(call, Err(EngineError::DamagedRow { model, position }));
            }
        }
    }

    /// The rows of logits that calls of a model can have now.
    fn wanted_logits(&self, model: usize) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        let mut left = self.options.prefill_rows;
        for (&call, request) in self.calls_of(model).filter(|(_, request)| request.admitted) {
            let computed = request.sequence.computed;
            match &request.work {
                Work::Generate(_) if computed == request.sequence.len() => {
                    wanted.push(Wanted { call, position: computed - 1, scored: None });
                }
                Work::Generate(_) => {}
                Work::Score(scoring) => {
                    let begin = scoring.tokens.len();
                    let ready = (computed + 1).saturating_sub(scoring.first);
                    let end = ready.min(scoring.ids.len()).min(begin + left);
                    for index in begin..end {
                        let position = scoring.first + index - 1;
                        wanted.push(Wanted { call, position, scored: Some(index) });
                    }
                    left -= end.saturating_sub(begin);
                }
            }
        }
        wanted
    }

    /// Computes rows of logits, draws or scores with each, and takes the results in.
    fn read_logits(&mut self, model: usize, wanted: &[Wanted]) {
        let alive = |want: &&Wanted| self.requests.contains_key(&want.call);
        let wanted: Vec<Wanted> = wanted.iter().filter(alive).copied().collect();
        let hosted = &mut self.memory.models[model];
        let places: Vec<HiddenAt> = wanted
            .iter()
            .map(|want| {
                let request = &self.requests[&want.call];
                let written = request.written.hidden_at(want.position, self.clock);
                written.unwrap_or_else(|| hosted.hidden_at(&request.sequence, want.position))
            })
            .collect();
        let (distinct, row_of) = without_doubles(&places);
        let size = hosted.info.vocab_size;
        let mut logits = std::mem::take(&mut self.logits);
        logits.resize(distinct.len() * size, 0.0);
        if self.options.check_every_step {
            // What the decoder leaves unwritten is then found.
            logits.fill(f32::NAN);
        }
        if let Err(error) = hosted.decoder.logits(&distinct, &mut logits) {
            let failed = hosted.failed(&error);
            for want in &wanted {
                self.end_call(want.call, Err(failed.clone()));
            }
            return;
        }
        let results: Vec<OnceLock<Result<TokenStats, NotFinite>>> =
            wanted.iter().map(|_| OnceLock::new()).collect();
        let requests = &self.requests;
        let read = |index: usize| {
            let row = &logits[row_of[index] * size..][..size];
            let _ = results[index].set(read_row(row, &wanted[index], requests));
        };
        self.memory.models[model].decoder.for_each(wanted.len(), &read);
        self.logits = logits;
        for (want, result) in wanted.iter().zip(results) {
            if let Some(result) = result.into_inner() {
                self.take_result(model, want, result);
            }
        }
    }

    fn take_result(&mut self, model: usize, want: &Wanted, result: Result<TokenStats, NotFinite>) {
        let Wanted { call, position, scored } = *want;
        let stats = match result {
            Ok(stats) => stats,
            Err(NotFinite { token, value }) => {
                let model = self.memory.models[model].info.name.clone();
                let error = EngineError::NotFinite { model, position, token, value };
                return self.end_call(call, Err(error));
            }
        };
        self.note(|| Event::read(call, position, &stats));
        let serial = self.serials.next();
        let Some(request) = self.requests.get_mut(&call) else { return };
        let over = match (&mut request.work, scored) {
            (Work::Score(scoring), Some(_)) => {
                scoring.tokens.push(stats);
                scoring.tokens.len() == scoring.ids.len()
            }
            (Work::Generate(_), None) => {
                let token = GeneratedToken { position: position + 1, stats };
                take_drawn(request, &self.memory.models[model], token, serial)
            }
            _ => false,
        };
        if over {
            self.end_call(call, Ok(()));
        }
    }
}

/// Places without repetition, and for each of the given ones its number among them.
fn without_doubles(places: &[HiddenAt]) -> (Vec<HiddenAt>, Vec<usize>) {
    let mut distinct = Vec::new();
    let mut known: HashMap<(PageId, usize), usize> = HashMap::new();
    let rows = places
        .iter()
        .map(|place| {
            *known.entry((place.page, place.offset)).or_insert_with(|| {
                distinct.push(*place);
                distinct.len() - 1
            })
        })
        .collect();
    (distinct, rows)
}

/// Draws or scores with one row of logits.
fn read_row(
    row: &[f32],
    want: &Wanted,
    requests: &std::collections::BTreeMap<u64, Request>,
) -> Result<TokenStats, NotFinite> {
    thread_local! {
        static SAMPLER: RefCell<Sampler> = RefCell::default();
    }
    let softmax = Softmax::of(row)?;
    let (id, top) = match (&requests[&want.call].work, want.scored) {
        (Work::Score(scoring), index) => (scoring.ids[index.unwrap_or(0)], scoring.top),
        (Work::Generate(reply), _) => {
            let (sampling, position) = (&reply.sampling, want.position + 1);
            let id = SAMPLER
                .with_borrow_mut(|sampler| sampler.draw(row, sampling, &reply.counts, position));
            (id, sampling.top_logprobs)
        }
    };
    Ok(softmax.stats(row, id, top))
}

/// Takes a drawn token into its reply; true when that ended it.
fn take_drawn(request: &mut Request, model: &Model, token: GeneratedToken, serial: u64) -> bool {
    let Request { cost, sequence, work, .. } = request;
    let Work::Generate(reply) = work else { return false };
    cost.generated_tokens += 1;
    let id = token.id();
    if model.stop_ids.contains(&id) || reply.sampling.stop_ids.contains(&id) {
        reply.ending = Some(Ending {
            stop: Some(Stop::Id(id)),
            cut: vec![token],
            ..Ending::plain(FinishReason::StopId)
        });
        return true;
    }
    sequence.append(&[id], Birth::drawn(serial));
    if let Some(ending) = reply.push(token, model.tokens.token_bytes(id)) {
        reply.ending = Some(ending);
        return true;
    }
    let length = sequence.len();
    let reason = if length - reply.start == reply.sampling.max_tokens {
        FinishReason::MaxTokens
    } else if length == model.info.context_length {
        FinishReason::ContextFull
    } else {
        return false;
    };
    reply.ending = Some(Ending::plain(reason));
    true
}

/// Counts a call's rows up to `end`, of which those before `good` are of use.
///
/// A generated token's row is fed back the first time. All others are computed; they are computed
/// *again* when this call had them in pages before (it was preempted), when another row of the same
/// pass is the same, when their hidden rows were not kept, or when the tree gave them up.
fn count_rows(
    request: &mut Request,
    model: &mut Model,
    end: usize,
    good: usize,
    in_pass: &mut HashSet<Prefix>,
) {
    let mut prefix = model.prefix(&request.sequence, request.owner.adapter);
    let Request { cost, sequence, prompt, reached, rerun, .. } = &mut *request;
    for position in sequence.computed..end {
        prefix = prefix.then(sequence.ids()[position]);
        let preempted = position < *reached;
        let generated = sequence.births()[position].is_draw();
        let fed_back = !preempted && generated && !sequence.was_met(position);
        if fed_back {
            cost.fed_back_tokens += 1;
            cost.cached_tokens += u64::from(position < *prompt);
        } else {
            cost.computed_tokens += 1;
            let again = &mut cost.recomputed;
            if preempted {
                again.preempted += 1;
            } else if in_pass.contains(&prefix) {
                again.in_flight += 1;
            } else if position < *rerun {
                again.hidden_not_kept += 1;
            } else if sequence.was_met(position) || model.tree.gave_up(prefix) {
                again.evicted += 1;
            }
        }
        in_pass.insert(prefix);
        if let Some(forwarded) = &mut model.forwarded {
            forwarded.forwarded(prefix, fed_back);
        }
        if position >= good {
            model.tree.give_up(prefix);
        }
    }
    request.note_reached(end);
}
