//! A reply as its caller sees it: tokens as they become sure, then how it ended.

use tokio::sync::mpsc;

use super::session::Session;
use super::{Cost, EngineError, FinishReason, TokenStats};
use crate::text::TokenId;

/// A token of a reply, at its place in the sequence.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct GeneratedToken {
    /// Position in the sequence, from 0.
    pub position: usize,
    #[serde(flatten)]
    pub stats: TokenStats,
}

impl GeneratedToken {
    pub fn id(&self) -> TokenId {
        self.stats.id
    }
}

/// What ended a reply at its own wish.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    Id(TokenId),
    Text(String),
}

/// How a reply ended.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Finish {
    pub reason: FinishReason,
    /// Which stop id or stop string it was.
    pub stop: Option<Stop>,
    /// Tokens that were drawn and are not part of the sequence, with their statistics: the stop
    /// id, or those that the stop string reaches into.
    pub cut: Vec<GeneratedToken>,
    /// Text of the first cut token that comes before the stop string. The reply's text is that of
    /// its tokens and then this; the sequence ends with the tokens.
    pub tail: Vec<u8>,
    pub cost: Cost,
}

/// One event of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum GenerationEvent {
    /// A token that surely stays: no stop string can take it back.
    Token(GeneratedToken),
    /// The end; nothing comes after it.
    Finish(Finish),
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Generated {
    pub tokens: Vec<GeneratedToken>,
    pub finish: Finish,
}

impl Generated {
    /// The ids of the reply, as they are in the sequence.
    pub fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(GeneratedToken::id).collect()
    }
}

/// A reply in the making. Dropping it before its end cancels it within a step, and the session
/// then ends with the tokens that were received.
#[derive(Debug)]
pub struct Generation<'s> {
    session: &'s mut Session,
    call: u64,
    /// Position of the reply's first token.
    start: usize,
    events: mpsc::UnboundedReceiver<Result<GenerationEvent, EngineError>>,
    received: usize,
    ended: bool,
}

impl<'s> Generation<'s> {
    pub(super) fn new(
        session: &'s mut Session,
        call: u64,
        start: usize,
        events: mpsc::UnboundedReceiver<Result<GenerationEvent, EngineError>>,
    ) -> Self {
        Self { session, call, start, events, received: 0, ended: false }
    }

    /// The next event; nothing after `Finish` or an error. After an error the session ends with
    /// the tokens that were received.
    pub async fn next(&mut self) -> Option<Result<GenerationEvent, EngineError>> {
        if self.ended {
            return None;
        }
        let event = match self.events.recv().await {
            Some(event) => event,
            None => Err(self.session.why_stopped().await),
        };
        match event {
            Ok(GenerationEvent::Token(_)) => self.received += 1,
            Ok(GenerationEvent::Finish(_)) | Err(_) => self.ended = true,
        }
        Some(event)
    }

    /// All tokens to the end.
    pub async fn collect(mut self) -> Result<Generated, EngineError> {
        let mut tokens = Vec::new();
        while let Some(event) = self.next().await {
            match event? {
                GenerationEvent::Token(token) => tokens.push(token),
                GenerationEvent::Finish(finish) => return Ok(Generated { tokens, finish }),
            }
        }
        Err(EngineError::Stopped { what: "the reply had already ended".to_owned() })
    }

    /// Ends the reply with the tokens that were received, and tells what it cost.
    pub async fn cancel(mut self) -> Result<Finish, EngineError> {
        self.send_cancel();
        let mut unseen = 0;
        while let Some(event) = self.next().await {
            match event? {
                GenerationEvent::Token(_) => unseen += 1,
                // It may have ended by itself in the meantime; what the caller did not see is
                // undone, and then so is that end.
                GenerationEvent::Finish(finish) if unseen == 0 => return Ok(finish),
                GenerationEvent::Finish(finish) => {
                    return Ok(Finish {
                        reason: FinishReason::Cancelled,
                        stop: None,
                        cut: Vec::new(),
                        tail: Vec::new(),
                        ..finish
                    });
                }
            }
        }
        Err(EngineError::Stopped { what: "the reply had already ended".to_owned() })
    }

    fn send_cancel(&mut self) {
        self.session.cancel(self.call, self.start + self.received);
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.send_cancel();
        }
    }
}
