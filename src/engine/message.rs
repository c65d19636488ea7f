//! What callers say to the engine's thread.

use tokio::sync::oneshot;

use super::EngineError;
use super::hosted::PageUse;
use super::ledger::LedgerSnapshot;
use super::request::Request;

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, EngineError>>;

/// A message to the engine's thread.
pub(super) enum Command {
    Call(Box<Arrived>),
    /// The caller wants nothing more of a call. It may have ended by itself.
    Cancel {
        call: u64,
    },
    Ledger {
        answer: Answer<LedgerSnapshot>,
    },
    Pages {
        model: usize,
        answer: Answer<PageUse>,
    },
    ClearCache {
        answer: Answer<()>,
    },
    Check {
        answer: Answer<()>,
    },
}

/// A call as it arrives. Numbers rise with the time at which calls were made.
pub(super) struct Arrived {
    pub(super) number: u64,
    pub(super) request: Request,
}
