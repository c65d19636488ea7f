//! A reply as it becomes text: what was thought, and what was said.

use super::{Cost, FinishReason, Reply, ReplyToken, Thought, TokenId};
use crate::engine::TokenStats;
use crate::text::{Detokenizer, Tokenizer};

/// A reply that is being taken down.
pub(super) struct Writing<'t> {
    tokenizer: &'t Tokenizer,
    detokenizer: Detokenizer,
    /// The tokens that come belong to a think block.
    inside: bool,
    /// There was a think block, so line ends before the answer are not part of it.
    thought: Option<Thought>,
    text: String,
    tokens: Vec<ReplyToken>,
    ids: Vec<TokenId>,
    /// Text before a stop string that no whole token holds.
    tail: String,
}

impl<'t> Writing<'t> {
    /// A reply that begins inside a think block or outside.
    pub(super) fn new(tokenizer: &'t Tokenizer, inside: bool) -> Self {
        Self {
            tokenizer,
            detokenizer: Detokenizer::new(),
            inside,
            thought: inside.then(Thought::default),
            text: String::new(),
            tokens: Vec::new(),
            ids: Vec::new(),
            tail: String::new(),
        }
    }

    /// Takes a token; answers with the text that it makes certain. A tag ends what was being written,
    /// and what follows is thought or said.
    pub(super) fn token(&mut self, stats: &TokenStats, is_tag: bool) -> String {
        self.ids.push(stats.id);
        let mut shown = String::new();
        if is_tag {
            let rest = self.detokenizer.finish();
            shown += &self.write(&rest);
            self.inside = !self.inside;
            self.thought.get_or_insert_default();
        } else {
            let text = self.detokenizer.push(self.tokenizer, stats.id);
            shown += &self.write(&text);
        }
        let token = ReplyToken {
            text: shown.clone(),
            logprob: Some(stats.logprob),
            entropy: Some(stats.entropy),
        };
        match &mut self.thought {
            // The tags are the thought's own.
            Some(thought) if self.inside || is_tag => thought.tokens.push(token),
            _ => self.tokens.push(token),
        }
        shown
    }

    /// Takes ids that closed the think block in the model's place; answers with the text that was
    /// still held back.
    pub(super) fn close(&mut self, ids: &[TokenId]) -> String {
        let rest = self.detokenizer.finish();
        let shown = self.write(&rest);
        self.inside = false;
        self.thought.get_or_insert_default().forced += ids.len();
        self.ids.extend_from_slice(ids);
        shown
    }

    /// The last ids are not part of the reply after all: the context has no room for them.
    pub(super) fn take_back(&mut self, count: usize) {
        self.ids.truncate(self.ids.len().saturating_sub(count));
    }

    /// Takes the end of a reply with the text before its stop string; answers with the rest of its
    /// text.
    pub(super) fn end(&mut self, tail: &[u8]) -> String {
        let mut rest = self.detokenizer.push_bytes(tail);
        rest += &self.detokenizer.finish();
        let shown = self.write(&rest);
        if !tail.is_empty() {
            self.tail = rest;
        } else if let Some(last) = self.tokens.last_mut() {
            last.text += &shown;
        }
        shown
    }

    /// Adds text to what is being written; answers with what of it counts.
    fn write(&mut self, text: &str) -> String {
        if let (true, Some(thought)) = (self.inside, &mut self.thought) {
            thought.text += text;
            return text.to_owned();
        }
        let leading = self.thought.is_some() && self.text.is_empty();
        let text = if leading { text.trim_start_matches('\n') } else { text };
        self.text += text;
        text.to_owned()
    }

    pub(super) fn into_tokens(self) -> Vec<ReplyToken> {
        self.tokens
    }

    /// The reply. A tail was not generated as tokens of its own, so it is encoded as text.
    pub(super) fn reply(mut self, finish: FinishReason, cost: Cost) -> Result<Reply, String> {
        let tail = self.tokenizer.encode_behind(&self.tail).map_err(|error| error.to_string())?;
        self.ids.extend(tail);
        let Self { text, tokens, ids, mut thought, .. } = self;
        if let Some(thought) = &mut thought {
            thought.text = thought.text.trim_matches('\n').to_owned();
        }
        Ok(Reply { text, thought, tokens, ids, finish, cost })
    }
}
