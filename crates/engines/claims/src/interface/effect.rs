//! Everything a worker asks its shell to do: a closed list.

use std::sync::Arc;

use millrace_model::{Batch, Event, StateCommit, Timestamp};

use crate::interface::error::CommitError;
use crate::interface::input::{ReadQuery, RunId, Token};

#[derive(Clone, Debug)]
pub enum Effect {
    /// Make the batch durable, then report [`crate::Input::Committed`]. Commits may be merged and reported in any
    /// order.
    Commit { token: Token, batch: Batch },
    /// Read from the store, then report [`crate::Input::ReadDone`].
    Read { token: Token, query: ReadQuery },
    /// Call the handler with this index in the list the worker was created with, then report
    /// [`crate::Input::Finished`].
    Run(HandlerRun),
    /// Cut the run off: drop an async handler where it waits; a plain function cannot be ended. Report
    /// [`crate::Input::Finished`] when it has returned; its result is ignored.
    Cut { run: RunId },
    /// The answer to a handler's commit: `None` = nothing had changed.
    Answer { run: RunId, result: Result<Option<StateCommit>, CommitError> },
    /// A report for logs: a handler failed, an event was given up, a lease was lost.
    Note(Note),
    /// All events are given back and everything is durable: the session may end. With a reason, the store has failed.
    Stopped { failed: Option<String> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandlerRun {
    pub run: RunId,
    pub handler: usize,
    pub event: Arc<Event>,
    /// Starts at 1.
    pub attempt: u32,
    /// From this time on commits are refused, unless the lease is renewed.
    pub lease_until: Timestamp,
    /// The run is cut off after this time.
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The attempt failed, and the event waits for the next one.
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
    /// The run ended after its lease: nothing it did after that was written.
    LeaseExpired {
        handler: usize,
        event: millrace_model::EventId,
    },
    /// State that the run had read was changed by another commit before its own. The event is run again; no attempt is
    /// counted.
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
    /// The run was cut off by its timeout. The attempt has failed, and nothing the run still does is written.
    TimedOut {
        handler: usize,
        event: millrace_model::EventId,
        timeout_ms: u64,
        /// Another run gets its slot; otherwise the run keeps it until its function returns.
        replaced: bool,
    },
    /// The run has outlived its lease and has no timeout: nothing it does is written, and it keeps its slot.
    Overdue {
        handler: usize,
        event: millrace_model::EventId,
    },
    /// The grace period of a stop was over: the event is given back without an attempt.
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
    /// Somebody paused the handler by its row in the store, or resumed it.
    Paused {
        handler: usize,
        paused: bool,
    },
    /// The configuration has settings for a handler that this session does not run.
    UnusedSettings {
        id: String,
    },
    /// A new handler begins with this many retained events.
    Backlog {
        handler: usize,
        events: u64,
    },
    Fired {
        schedule: usize,
        at: Timestamp,
    },
    /// A claim waited longer than it should, because the wall clock was set back. The claim is due now.
    Stranded {
        handler: usize,
        stream: millrace_model::Stream,
        offset: millrace_model::Offset,
        due: Timestamp,
    },
    /// A delayed event was due whose row cannot be read: the row is kept below `quarantine/due/` in the table `kv`.
    DueSetAside {
        key: String,
    },
    /// The store refused a batch for its size. Nothing of it is written; events that are not acknowledged are run
    /// again.
    TooLarge {
        what: String,
        bytes: usize,
        limit: usize,
    },
    /// The schedule's row cannot be read, or another session has given it another cron expression or event: this
    /// session leaves it alone.
    ScheduleSkipped {
        schedule: usize,
        reason: String,
    },
}
