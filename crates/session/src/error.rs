//! What can go wrong in a session, by what the caller has to do next.

use millrace_model::NameError;
use millrace_store::StoreError;

use crate::state::StateError;
use crate::typed::EventError;

pub type Result<T, E = SessionError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Somebody else may be working on the event by now. Return the error: the event is tried again.
    #[error(
        "the lease on the event ran out before the commit: nothing was written, the event is tried again"
    )]
    LeaseExpired,
    /// Handlers feed one another in a circle, or the chain is longer than was foreseen.
    #[error(
        "the event would be {depth} handlers away from its root, at most {limit} are allowed: look for handlers \
         that feed one another, or raise max_event_chain_depth"
    )]
    EventLoopLimit { depth: u32, limit: u32 },
    /// Nothing was written and everything is still queued.
    #[error(
        "{count} intents in one commit, at most {limit} are allowed: commit more often, or raise max_batch_size"
    )]
    BatchSizeExceeded { count: usize, limit: usize },
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
