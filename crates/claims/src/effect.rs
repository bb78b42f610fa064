//! Everything a worker asks the world to do: a closed list.

use std::sync::Arc;

use millrace_model::{Batch, Event, StateCommit, Timestamp};

use crate::error::CommitError;
use crate::input::{Look, RunId, Token};

#[derive(Clone, Debug)]
pub enum Effect {
    /// Make it durable, then say [`crate::Input::Committed`]. Commits may be merged and reported in any order.
    Commit { token: Token, batch: Batch },
    /// Look into the store, then say [`crate::Input::Seen`].
    Look { token: Token, look: Look },
    /// Call the handler with this index in the list the worker was made with, then say [`crate::Input::Finished`].
    Run(Run),
    /// The answer to a handler's `commit()`: `None` = nothing had changed.
    Answer { run: RunId, result: Result<Option<StateCommit>, CommitError> },
    /// Somebody should know: a handler failed, an event was given up, a lease was lost. For logs.
    Note(Note),
    /// Everything is given back and durable: the session may end. With a reason, the store has failed.
    Stopped { failed: Option<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub run: RunId,
    pub handler: usize,
    pub event: Arc<Event>,
    /// 1 for the first try.
    pub attempt: u32,
    /// From this moment on commits are refused, unless the lease is renewed.
    pub lease_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The try failed and the event waits for the next.
    Failed {
        handler: usize,
        event: millrace_model::EventId,
        attempts: u32,
        retry_at: Timestamp,
        error: String,
    },
    DeadLettered {
        handler: usize,
        event: millrace_model::EventId,
        attempts: u32,
        error: String,
    },
    /// The run came too late, what it did after its lease was not written.
    LeaseExpired {
        handler: usize,
        event: millrace_model::EventId,
    },
    Fired {
        schedule: usize,
        at: Timestamp,
    },
    /// The store would not take something. Nothing of it is written; what is not acknowledged is tried again.
    TooLarge {
        what: String,
        bytes: usize,
        limit: usize,
    },
    /// The schedule in the store cannot be read or was taken over with another cron: it is left alone.
    ScheduleSkipped {
        schedule: usize,
        reason: String,
    },
}
