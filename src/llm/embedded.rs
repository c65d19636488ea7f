//! Dialogues on the embedded engine: each is a live session whose keys and values stay.
//!
//! A turn is rendered to ids and compared with the ids that the session holds. What they begin with
//! alike stays; the session is rewound to there and the rest appended. So a rewind, a retry or a
//! correction pays for the tokens that changed, and for nothing before them. What the model generated
//! stands in the dialogue as the ids it was generated as.

use std::sync::Arc;

use async_trait::async_trait;

use super::history::{History, Message};
use super::{
    Abilities, Ask, Cost, Dialogue, DialogueMark, Llm, LlmError, Opening, Reply, ReplyToken, Role,
    TakenBack, TokenId,
};
use crate::engine::{
    Engine, EngineError, Finish, GenerationEvent, Sampling, Session, Tag, TokenStats,
};
use crate::model::AdapterId;
use crate::text::{self, ChatTemplate, Detokenizer, TemplateError, Tokenizer};

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
        let (name, adapter) = (name.to_owned(), None);
        Ok(Self { name, context_length, engine, tokenizer, template, adapter })
    }

    /// The same model with one of its adapters.
    pub fn with_adapter(self, adapter: AdapterId) -> Self {
        Self { adapter: Some(adapter), ..self }
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
        let messages: Vec<text::Message<'_>> = messages
            .iter()
            .map(|message| match message.ids.as_slice() {
                [] => text::Message::text(message.role, &message.text),
                ids => text::Message::ids(message.role, ids),
            })
            .collect();
        self.template.ids(&self.tokenizer, &messages, generation_prompt)
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
        LlmError::Template { model: self.model.name.clone(), what: error.to_string() }
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
        let dropped = self.bring_up().await?;
        let (sampling, tag) = (self.sampling(ask), self.tag());
        let model = &self.model;
        let mut writing = Writing::new(&model.tokenizer);
        let refused = |error| model.engine_error(error);
        let mut generation = self.session.generate(&sampling, &tag).await.map_err(refused)?;
        let finish = loop {
            match generation.next().await {
                Some(Ok(GenerationEvent::Token(token))) => {
                    self.history.piece(&writing.token(&token.stats));
                }
                Some(Ok(GenerationEvent::Finish(finish))) => break finish,
                Some(Err(error)) => return Err(refused(error)),
                None => {
                    let what = "the reply ended without saying how".to_owned();
                    return Err(LlmError::Engine { what });
                }
            }
        };
        self.history.piece(&writing.end(&finish));
        let cost = Cost { dropped_tokens: dropped, ..finish.cost };
        let reply = writing.reply(finish, cost).map_err(|what| LlmError::Engine { what })?;
        self.history.heard(&reply);
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
        let ids = self.model.tokenizer.encode(text).map_err(|e| self.template_error(&e.into()))?;
        let dropped = self.bring_up().await?;
        let tag = self.tag();
        let scored = self.session.score(&ids, 0, &tag).await;
        let scored = scored.map_err(|e| self.model.engine_error(e))?;
        self.history.charge(Cost { dropped_tokens: dropped, ..scored.cost });
        let mut writing = Writing::new(&self.model.tokenizer);
        for token in &scored.tokens {
            writing.token(token);
        }
        writing.finish(&[]);
        Ok(writing.tokens)
    }

    fn messages(&self) -> Vec<(Role, String)> {
        self.history.texts()
    }

    fn cost(&self) -> Cost {
        self.history.cost()
    }
}

/// A reply as it becomes text.
struct Writing<'t> {
    tokenizer: &'t Tokenizer,
    detokenizer: Detokenizer,
    text: String,
    tokens: Vec<ReplyToken>,
    ids: Vec<TokenId>,
    /// Text before a stop string that no whole token holds.
    tail: String,
}

impl<'t> Writing<'t> {
    fn new(tokenizer: &'t Tokenizer) -> Self {
        let (tokens, ids) = (Vec::new(), Vec::new());
        let (text, tail) = (String::new(), String::new());
        Self { tokenizer, detokenizer: Detokenizer::new(), text, tokens, ids, tail }
    }

    /// Takes a token; answers with the text that it makes certain.
    fn token(&mut self, stats: &TokenStats) -> String {
        let text = self.detokenizer.push(self.tokenizer, stats.id);
        self.text += &text;
        self.ids.push(stats.id);
        self.tokens.push(ReplyToken {
            text: text.clone(),
            logprob: Some(stats.logprob),
            entropy: Some(stats.entropy),
        });
        text
    }

    /// Takes the end of a reply; answers with the rest of its text.
    fn end(&mut self, finish: &Finish) -> String {
        self.finish(&finish.tail)
    }

    fn finish(&mut self, tail: &[u8]) -> String {
        let mut rest = self.detokenizer.push_bytes(tail);
        rest += &self.detokenizer.finish();
        self.text += &rest;
        if tail.is_empty() {
            if let Some(last) = self.tokens.last_mut() {
                last.text += &rest;
            }
        } else {
            self.tail.clone_from(&rest);
        }
        rest
    }

    /// The reply. A tail was not generated as tokens of its own, so it is encoded as text.
    fn reply(mut self, finish: Finish, cost: Cost) -> Result<Reply, String> {
        let tail = self.tokenizer.encode(&self.tail).map_err(|error| error.to_string())?;
        self.ids.extend(tail);
        let Self { text, tokens, ids, .. } = self;
        Ok(Reply { text, tokens, ids, finish: finish.reason, cost })
    }
}

/// How many ids two sequences begin with alike.
fn common(one: &[TokenId], other: &[TokenId]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
