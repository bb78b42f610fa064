//! The errors of a session, grouped by what the caller has to do next.

use millrace_claims::{CommitError, SpecError};
use millrace_model::{Identity, NameError, RowError};
use millrace_state::StateError;
use millrace_store::{FailureCause, StoreError};
use millrace_stores::{OpenError, StoreUrlError};

use crate::typed::EventError;

pub type Result<T, E = SessionError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another session may be working on the event by now. Return the error: the event is tried again.
    #[error(
        "the lease on the event ran out before the commit: nothing was written, the event is tried again"
    )]
    LeaseExpired,
    /// The handler took longer than its timeout. Return the error: the attempt has failed already.
    #[error("the handler did not answer within {timeout_ms} ms: nothing was written, the attempt has failed")]
    TimedOut { timeout_ms: u64 },
    /// Handlers cause events for one another in a circle, or the chain is longer than expected.
    #[error(
        "the event would be {depth} handlers away from its root, at most {limit} are allowed: look for handlers \
         that feed one another, or raise max_event_chain_depth"
    )]
    EventLoopLimit { depth: u32, limit: u32 },
    /// Nothing was written, and everything is still queued.
    #[error(
        "{count} intents in one commit, at most {limit} are allowed: commit more often, or raise max_batch_size"
    )]
    BatchSizeExceeded { count: usize, limit: usize },
    /// Nothing was written, and everything is still queued.
    #[error(
        "{bytes} bytes at once, at most {limit} are allowed: commit more often, or put less into the event"
    )]
    TooLarge { bytes: usize, limit: usize },
    /// Nothing was written. Outside of handlers everything is still queued; in a handler the attempt has failed.
    #[error("an event was to be delayed by {delay_ms} ms, at most {limit} are allowed")]
    DelayTooLong { delay_ms: u64, limit: u64 },
    /// Another commit changed this identity after it was read. Nothing was written. A handler returns the error: its
    /// event is run again, and no attempt is counted. Other callers read again, decide again and commit again.
    #[error("{identity} has changed since it was read: nothing was written; read it again")]
    Conflict { identity: Identity },
    /// `commit_and_ack` was already called for this event, and must be the last commit.
    #[error(
        "the event is acknowledged: after commit_and_ack nothing more can be declared, emitted or committed for it"
    )]
    Acknowledged,
    /// Nothing was written. Try again when the migration has finished.
    #[error("somebody kept changing the schema of what was to be committed: nothing was written, try again")]
    SchemaChanging,
    /// Nothing of this commit was written.
    #[error("the session has stopped: nothing was written")]
    Stopped,
    #[error("this session runs on virtual time: use start and advance, or run_until_idle")]
    Simulated,
    #[error("there is no schedule named {0:?} in this namespace: run a session with it once")]
    NoSuchSchedule(String),
    #[error("the schedule {0:?} was changed by others at every try: try again")]
    ScheduleBusy(String),
    #[error("the session holds no value of type {wanted}: give it one by Session::builder(url).with(value)")]
    NoData { wanted: &'static str },
    #[error("a thread could not be started: {0}")]
    Thread(#[source] std::io::Error),
    #[error("the thread of the session panicked: what it had claimed is tried again when its leases run out")]
    Panicked,
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Event(#[from] EventError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    #[error(transparent)]
    Damaged(#[from] RowError),
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for SessionError {
    fn from(error: StoreError) -> SessionError {
        match error {
            StoreError::TooLarge { bytes, max } => SessionError::TooLarge { bytes, limit: max },
            other => SessionError::Store(other),
        }
    }
}

impl From<OpenError> for SessionError {
    fn from(error: OpenError) -> SessionError {
        match error {
            OpenError::Url(error) => SessionError::Url(error),
            OpenError::Store(error) => error.into(),
            OpenError::Address(text) => SessionError::Store(StoreError::Unusable(text.into())),
            OpenError::Shared(error) => SessionError::Store(StoreError::Unusable(FailureCause::of(error))),
        }
    }
}

impl From<CommitError> for SessionError {
    fn from(error: CommitError) -> SessionError {
        match error {
            CommitError::LeaseExpired => SessionError::LeaseExpired,
            CommitError::TimedOut { timeout_ms } => SessionError::TimedOut { timeout_ms },
            CommitError::EventLoopLimit { depth, limit } => SessionError::EventLoopLimit { depth, limit },
            CommitError::BatchSizeExceeded { count, limit } => {
                SessionError::BatchSizeExceeded { count, limit }
            }
            CommitError::TooLarge { bytes, limit } => SessionError::TooLarge { bytes, limit },
            CommitError::DelayTooLong { delay_ms, limit } => SessionError::DelayTooLong { delay_ms, limit },
            CommitError::Conflict { identity } => SessionError::Conflict { identity },
            CommitError::Acknowledged => SessionError::Acknowledged,
            CommitError::Refused { .. } => SessionError::SchemaChanging,
            CommitError::StorageFailed { reason } => SessionError::Store(StoreError::Poisoned(reason.into())),
            CommitError::Stopped => SessionError::Stopped,
        }
    }
}
