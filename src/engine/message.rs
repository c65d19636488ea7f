//! What callers say to the engine's thread.

use tokio::sync::oneshot;

use super::hosted::PageUse;
use super::ledger::{LedgerSnapshot, Tag};
use super::request::Events;
use super::session::{Mark, Scored, SessionId};
use super::{EngineError, Sampling};
use crate::model::AdapterId;
use crate::text::TokenId;

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, EngineError>>;

/// A message to the engine's thread.
pub(super) enum Command {
    Open {
        model: usize,
        adapter: Option<AdapterId>,
        answer: Answer<SessionId>,
    },
    Close {
        session: SessionId,
    },
    Append {
        session: SessionId,
        ids: Vec<TokenId>,
        answer: Answer<()>,
    },
    Generate {
        session: SessionId,
        sampling: Sampling,
        tag: Tag,
        events: Events,
        answer: Answer<()>,
    },
    /// Ends a reply of which the caller has received so many tokens; the others are undone.
    Cancel {
        session: SessionId,
        received: usize,
    },
    Score {
        session: SessionId,
        ids: Vec<TokenId>,
        top: usize,
        tag: Tag,
        answer: Answer<Scored>,
    },
    Mark {
        session: SessionId,
        answer: Answer<Mark>,
    },
    Rewind {
        session: SessionId,
        mark: Mark,
        answer: Answer<usize>,
    },
    Fork {
        session: SessionId,
        answer: Answer<SessionId>,
    },
    Ids {
        session: SessionId,
        answer: Answer<Vec<TokenId>>,
    },
    Len {
        session: SessionId,
        answer: Answer<usize>,
    },
    Ledger {
        answer: Answer<LedgerSnapshot>,
    },
    Pages {
        model: usize,
        answer: Answer<PageUse>,
    },
    Check {
        answer: Answer<()>,
    },
}
