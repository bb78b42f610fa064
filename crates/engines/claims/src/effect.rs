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
    /// Cut the run off: an async handler is dropped where it waits, a plain one cannot be ended. Say
    /// [`crate::Input::Finished`] when it has returned; what it says then does not count.
    Cut { run: RunId },
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
    /// It is cut off after so long.
    pub timeout_ms: Option<u64>,
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
    /// State that the run had read was changed by somebody else before its commit. It is run again; no attempt is counted.
    Conflict {
        handler: usize,
        event: millrace_model::EventId,
        identity: millrace_model::Identity,
        /// Conflicts of this event and handler since the last attempt that counted.
        conflicts: u32,
        retry_at: Timestamp,
    },
    /// The handler failed after its last commit had acknowledged the event: the event stays done.
    FailedAfterAck {
        handler: usize,
        event: millrace_model::EventId,
        error: String,
    },
    /// The run was cut off. Its try has failed, and nothing it still does is written.
    TimedOut {
        handler: usize,
        event: millrace_model::EventId,
        timeout_ms: u64,
        /// Its place goes to another run; otherwise it keeps it until its function returns.
        replaced: bool,
    },
    /// The run has outlived its lease, and it has no timeout: nothing it does is written, and it keeps its place.
    Overdue {
        handler: usize,
        event: millrace_model::EventId,
    },
    /// The grace time of a stop was over: the event is given back without an attempt.
    CutByStop {
        handler: usize,
        event: millrace_model::EventId,
    },
    /// The function of a run that was cut off has returned after all.
    Returned {
        handler: usize,
        event: millrace_model::EventId,
        after_ms: u64,
    },
    Snoozed {
        handler: usize,
        event: millrace_model::EventId,
        snoozes: u32,
        until: Timestamp,
        reason: String,
    },
    Discarded {
        handler: usize,
        event: millrace_model::EventId,
        reason: String,
    },
    /// Somebody paused the handler from outside, or let it go on.
    Paused {
        handler: usize,
        paused: bool,
    },
    /// The configuration has settings for a handler that this session does not run.
    UnusedSettings {
        id: String,
    },
    /// A handler that was never seen before begins with this many events that are retained.
    Backlog {
        handler: usize,
        events: u64,
    },
    Fired {
        schedule: usize,
        at: Timestamp,
    },
    /// A claim waited longer than it was given, because the wall clock was set back. It is due now.
    Stranded {
        handler: usize,
        stream: millrace_model::Stream,
        offset: millrace_model::Offset,
        due: Timestamp,
    },
    /// A delayed event whose row cannot be read was due: the row is kept below `quarantine/due/` in the table `kv`.
    DueSetAside {
        key: String,
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
