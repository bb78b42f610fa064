//! Actions: parts of a batch that are committed or refused as a whole, and what follows from each. Many actions share one
//! commit (`shared_commit.rs`).

use std::sync::Arc;

use millrace_model::{BATCH_BYTES_MAX, Check, Event, Op, Ticket, Timestamp};

use crate::interface::input::RunId;

/// The type of the events that report dead letters.
pub const DEAD_LETTER_TOPIC: &str = "event.dead_letter";

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) checks: Vec<Check>,
    pub(crate) ops: Vec<Op>,
    pub(crate) follow_up: FollowUp,
}

/// The consequences of an action: when it is durable, or when one of its checks was refused.
#[derive(Clone, Debug)]
pub(crate) enum FollowUp {
    Nothing,
    Acked {
        handler: usize,
        event: Arc<Event>,
    },
    Released {
        handler: usize,
        event: Arc<Event>,
        attempts: u32,
        due: Timestamp,
        error: String,
    },
    DeadLettered {
        handler: usize,
        event: Arc<Event>,
        attempts: u32,
        error: String,
    },
    /// A conflict: the event waits to be run again.
    RunAgain {
        handler: usize,
        event: Arc<Event>,
        identity: millrace_model::Identity,
        conflicts: u32,
        due: Timestamp,
    },
    Snoozed {
        handler: usize,
        event: Arc<Event>,
        snoozes: u32,
        due: Timestamp,
        reason: String,
    },
    Discarded {
        handler: usize,
        event: Arc<Event>,
        reason: String,
    },
    GivenBack {
        handler: usize,
    },
    Renewed {
        run: RunId,
        ticket: Ticket,
    },
    Marked {
        run: RunId,
        ticket: Ticket,
    },
    Fired {
        schedule: usize,
        row: millrace_model::ScheduleRow,
        at: Vec<Timestamp>,
    },
}

impl Action {
    /// The approximate size of the action within a batch.
    pub(crate) fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }

    pub(crate) fn fits(&self) -> bool {
        self.bytes() <= BATCH_BYTES_MAX
    }

    /// The handler for which the action ends an event, if it ends one.
    pub(crate) fn ends_event_of(&self) -> Option<usize> {
        match &self.follow_up {
            FollowUp::Acked { handler, .. }
            | FollowUp::DeadLettered { handler, .. }
            | FollowUp::Discarded { handler, .. } => Some(*handler),
            _ => None,
        }
    }
}
