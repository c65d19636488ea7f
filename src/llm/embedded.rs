//! Dialogues on the embedded engine: each is a live session whose keys and values stay.
//!
//! A turn is rendered to ids and compared with the ids that the session holds. What they begin with
//! alike stays; the session is rewound to there and the rest appended. So a rewind, a retry or a
//! correction pays for the tokens that changed, and for nothing before them. What the model generated
//! stands in the dialogue as the ids it was generated as.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

use super::history::{History, Message};
use super::thinking::{Next, Part, Progress, Tags, Thinking};
use super::writing::Writing;
use super::{
    Abilities, Ask, Cost, Dialogue, DialogueMark, Llm, LlmError, Opening, Reply, ReplyToken, Role,
    TakenBack, TokenId,
};
use crate::engine::{
    Engine, EngineError, Finish, FinishReason, GenerationEvent, Sampling, Session, Tag,
};
use crate::model::AdapterId;
use crate::text::{self, ChatTemplate, TemplateError, Tokenizer};

/// A model of an engine of this process. Clones share the engine.
#[derive(Clone)]
pub struct Embedded {
    engine: Engine,
    name: String,
    context_length: usize,
    tokenizer: Arc<Tokenizer>,
    template: Arc<ChatTemplate>,
    /// Its dialogues are held with this adapter.
    adapter: Option<AdapterId>,
    tags: Option<Tags>,
    thinking: Thinking,
}

impl Embedded {
    /// A hosted model, by its name in the engine, with the tokenizer and template that are its own.
    pub fn new(
        engine: Engine,
        name: &str,
        tokenizer: Arc<Tokenizer>,
        template: Arc<ChatTemplate>,
    ) -> Result<Self, EngineError> {
        let hosted = engine.models().iter().find(|model| model.name == name);
        let Some(model) = hosted else {
            let names: Vec<&str> = engine.models().iter().map(|m| m.name.as_str()).collect();
            let hosted = names.join(", ");
            return Err(EngineError::UnknownModel { name: name.to_owned(), hosted });
        };
        let context_length = model.context_length;
        let tags = Tags::of(&tokenizer);
        let thinking = Thinking::default();
        let (name, adapter) = (name.to_owned(), None);
        Ok(Self { engine, name, context_length, tokenizer, template, adapter, tags, thinking })
    }

    /// The same model with one of its adapters.
    pub fn with_adapter(self, adapter: AdapterId) -> Self {
        Self { adapter: Some(adapter), ..self }
    }

    /// The same model that thinks as it is told. A template without the switch that is set, and a
    /// vocabulary without the tags that a budget needs, are refused; `origin` names the model's files.
    pub fn with_thinking(
        mut self,
        thinking: Thinking,
        origin: &Path,
    ) -> Result<Self, TemplateError> {
        let path = || origin.to_owned();
        if let Some(on) = thinking.switch {
            if !self.template.has_thinking_switch(&self.tokenizer)? {
                return Err(TemplateError::NoThinkingSwitch { path: path() });
            }
            let template = (*self.template).clone().with_variable("enable_thinking", on);
            self.template = Arc::new(template);
        }
        if thinking.budget.is_some() && self.tags.is_none() {
            return Err(TemplateError::NoThinkingTokens { path: path() });
        }
        self.thinking = thinking;
        Ok(self)
    }

    /// The engine, with the ledger of all dialogues.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The ids of a dialogue; with `generation_prompt`, up to where the reply begins.
    fn render(
        &self,
        messages: &[Message],
        generation_prompt: bool,
    ) -> Result<Vec<TokenId>, TemplateError> {
        self.template.ids(&self.tokenizer, &rendered(messages), generation_prompt)
    }

    fn engine_error(&self, error: EngineError) -> LlmError {
        match error {
            EngineError::ContextOverflow { needed, limit, .. } => self.full(needed, limit),
            other => LlmError::Engine { what: other.to_string() },
        }
    }

    fn full(&self, needed: usize, limit: usize) -> LlmError {
        LlmError::ContextFull { model: self.name.clone(), needed, limit }
    }
}

#[async_trait]
impl Llm for Embedded {
    fn name(&self) -> &str {
        &self.name
    }

    fn abilities(&self) -> Abilities {
        let context_length = self.context_length;
        Abilities { logprobs: true, score: true, keeps_cache: true, context_length }
    }

    async fn open(&self, opening: Opening) -> Result<Box<dyn Dialogue>, LlmError> {
        let session = self.engine.open(&self.name, self.adapter).await;
        let session = session.map_err(|e| self.engine_error(e))?;
        let history = History::new(opening);
        let model = self.clone();
        Ok(Box::new(EmbeddedDialogue { model, session, history, taken_back: false }))
    }
}

struct EmbeddedDialogue {
    model: Embedded,
    session: Session,
    history: History,
    /// Messages were taken back since the session was last brought up to the dialogue, so that ids it
    /// then loses were not lost to the template.
    taken_back: bool,
}

impl EmbeddedDialogue {
    /// Brings the session up to where the reply begins; answers with how many ids the template gave
    /// up by writing earlier turns differently.
    ///
    /// What was generated stays as it was, and so does what the template wrote before it: a think block
    /// that it leaves out of turns that are past, say. Where it writes other messages differently than
    /// before, the ids from there on are given up.
    async fn bring_up(&mut self) -> Result<u64, LlmError> {
        let wanted = self
            .model
            .render(self.history.messages(), true)
            .map_err(|error| self.template_error(&error))?;
        let limit = self.model.context_length;
        if wanted.len() >= limit {
            return Err(self.model.full(wanted.len() + 1, limit));
        }
        let lost = self.keep_common(&wanted).await.map_err(|e| self.model.engine_error(e))?;
        let taken_back = std::mem::take(&mut self.taken_back);
        Ok(if taken_back { 0 } else { lost as u64 })
    }

    /// Makes the session hold `wanted` and nothing else, keeping what it begins with already;
    /// answers with how many ids it lost.
    async fn keep_common(&mut self, wanted: &[TokenId]) -> Result<usize, EngineError> {
        let held = self.session.ids().await?;
        let kept = common(&held, wanted);
        if kept < held.len() {
            let mark = self.session.mark_at(kept).await?;
            self.session.rewind(mark).await?;
        }
        if kept < wanted.len() {
            self.session.append(&wanted[kept..]).await?;
        }
        Ok(held.len() - kept)
    }

    fn sampling(&self, ask: &Ask) -> Sampling {
        Sampling {
            temperature: ask.temperature,
            top_k: ask.top_k,
            top_p: ask.top_p,
            min_p: ask.min_p,
            presence_penalty: ask.presence_penalty,
            frequency_penalty: ask.frequency_penalty,
            stop_strings: ask.stop.clone(),
            max_tokens: ask.max_tokens,
            seed: self.history.opening().seed,
            stream: self.history.stream(),
            ..Sampling::default()
        }
    }

    /// On whose account the next call goes. A turn is the reply's place in the dialogue, from 1, so
    /// that a retry is on the account of the same turn.
    fn tag(&self) -> Tag {
        let replies = self.history.messages().iter().filter(|m| m.role == Role::Assistant).count();
        Tag::new(self.history.opening().method.clone(), replies as u32 + 1)
    }

    fn template_error(&self, error: &TemplateError) -> LlmError {
        let model = self.model.name.clone();
        match error {
            TemplateError::Refused { message } => {
                LlmError::Template { model, what: message.clone() }
            }
            other => LlmError::Rendering { model, what: other.to_string() },
        }
    }

    /// What stands before the reply since the turn was opened.
    fn lead(&self) -> Result<Vec<TokenId>, LlmError> {
        let messages = rendered(self.history.messages());
        let lead = self.model.template.lead(&self.model.tokenizer, &messages);
        lead.map_err(|error| self.template_error(&error))
    }

    /// Draws a part of a reply, told as it comes.
    async fn draw(
        &mut self,
        sampling: &Sampling,
        writing: &mut Writing<'_>,
        progress: &mut Progress,
    ) -> Result<Finish, EngineError> {
        let tag = self.tag();
        let mut generation = self.session.generate(sampling, &tag).await?;
        loop {
            match generation.next().await {
                Some(Ok(GenerationEvent::Token(token))) => {
                    let is_tag = progress.token(token.id());
                    self.history.piece(&writing.token(&token.stats, is_tag));
                }
                Some(Ok(GenerationEvent::Finish(finish))) => return Ok(finish),
                Some(Err(error)) => return Err(error),
                None => {
                    let what = "the reply ended without saying how".to_owned();
                    return Err(EngineError::Stopped { what });
                }
            }
        }
    }

    /// Puts ids behind a reply that goes on, unless nothing could follow them.
    async fn put(&mut self, ids: &[TokenId]) -> Result<bool, EngineError> {
        let held = self.session.len().await?;
        let room = held + ids.len() < self.model.context_length;
        if room {
            self.session.append(ids).await?;
        }
        Ok(room)
    }

    /// How many of the session's ids lie after the dialogue's end at a mark. A template that refuses
    /// so short a dialogue leaves none before it.
    async fn ids_after(&self, mark: DialogueMark) -> Result<u64, LlmError> {
        let held = self.session.ids().await.map_err(|e| self.model.engine_error(e))?;
        let before = match mark.0 {
            0 => Vec::new(),
            n => self.model.render(&self.history.messages()[..n], false).unwrap_or_default(),
        };
        Ok((held.len() - common(&held, &before)) as u64)
    }
}

#[async_trait]
impl Dialogue for EmbeddedDialogue {
    fn say(&mut self, role: Role, text: &str) {
        self.history.say(role, text, &[]);
    }

    fn say_reply(&mut self, reply: &Reply) {
        self.history.say(Role::Assistant, &reply.text, &reply.ids);
    }

    async fn reply(&mut self, ask: &Ask) -> Result<Reply, LlmError> {
        let dropped_tokens = self.bring_up().await?;
        let lead = self.lead()?;
        let model = self.model.clone();
        let refused = |error| model.engine_error(error);
        let budget = model.thinking.budget;
        let mut progress = Progress::new(model.tags, budget, &lead, ask.max_tokens);
        let mut writing = Writing::new(&model.tokenizer, progress.inside());
        let mut cost = Cost { dropped_tokens, ..Cost::default() };
        let reason = loop {
            let (next, finish) = match progress.part() {
                None => (progress.without_a_part(), None),
                Some(Part { max_tokens, stop_ids }) => {
                    let sampling = Sampling { max_tokens, stop_ids, ..self.sampling(ask) };
                    let drawn = self.draw(&sampling, &mut writing, &mut progress).await;
                    let finish = drawn.map_err(refused)?;
                    cost += finish.cost;
                    (progress.after(&finish), Some(finish))
                }
            };
            let ids = match (next, finish) {
                (Next::End, None) => {
                    self.history.piece(&writing.end(&[]));
                    break FinishReason::MaxTokens;
                }
                (Next::End, Some(finish)) => {
                    self.history.piece(&writing.end(&finish.tail));
                    break finish.reason;
                }
                (Next::Tag(id), finish) => {
                    progress.token(id);
                    let stats = finish.iter().flat_map(|finish| &finish.cut).next();
                    if let Some(drawn) = stats {
                        self.history.piece(&writing.token(&drawn.stats, true));
                    }
                    vec![id]
                }
                (Next::Close, _) => {
                    let closing = model.tags.map(|tags| tags.closing(&model.tokenizer));
                    let ids = closing.transpose().map_err(|e| self.template_error(&e.into()))?;
                    let ids = ids.unwrap_or_default();
                    progress.closed();
                    self.history.piece(&writing.close(&ids));
                    ids
                }
            };
            if !self.put(&ids).await.map_err(refused)? {
                writing.take_back(ids.len());
                break FinishReason::ContextFull;
            }
        };
        let reply = writing.reply(reason, cost).map_err(|what| LlmError::Engine { what })?;
        self.history.heard(&reply, lead);
        Ok(reply)
    }

    fn mark(&self) -> DialogueMark {
        self.history.mark()
    }

    /// The session follows with the next reply, and then keeps what the dialogue still begins with,
    /// beyond the mark too where the same words are said again.
    async fn rewind(&mut self, mark: DialogueMark) -> Result<TakenBack, LlmError> {
        self.history.holds(mark)?;
        let tokens = self.ids_after(mark).await?;
        self.taken_back = true;
        Ok(self.history.rewind(mark, tokens))
    }

    async fn fork(&self, sample: u32) -> Result<Box<dyn Dialogue>, LlmError> {
        let session = self.session.fork().await.map_err(|e| self.model.engine_error(e))?;
        let history = self.history.fork(sample);
        let (model, taken_back) = (self.model.clone(), self.taken_back);
        Ok(Box::new(Self { model, session, history, taken_back }))
    }

    async fn score(&mut self, text: &str) -> Result<Vec<ReplyToken>, LlmError> {
        let ids = self.model.tokenizer.encode_behind(text);
        let ids = ids.map_err(|e| self.template_error(&e.into()))?;
        let dropped = self.bring_up().await?;
        let tag = self.tag();
        let scored = self.session.score(&ids, 0, &tag).await;
        let scored = scored.map_err(|e| self.model.engine_error(e))?;
        self.history.charge(Cost { dropped_tokens: dropped, ..scored.cost });
        let mut writing = Writing::new(&self.model.tokenizer, false);
        for token in &scored.tokens {
            writing.token(token, false);
        }
        writing.end(&[]);
        Ok(writing.into_tokens())
    }

    fn messages(&self) -> Vec<(Role, String)> {
        self.history.texts()
    }

    fn cost(&self) -> Cost {
        self.history.cost()
    }
}

/// Messages as the template takes them.
fn rendered(messages: &[Message]) -> Vec<text::Message<'_>> {
    messages
        .iter()
        .map(|message| match message.ids.as_slice() {
            [] => text::Message::text(message.role, &message.text),
            ids => text::Message::ids(message.role, ids).behind(&message.lead),
        })
        .collect()
}

/// How many ids two sequences begin with alike.
fn common(one: &[TokenId], other: &[TokenId]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
