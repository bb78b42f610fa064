//! Rows of the small tables that belong to durable handlers, sessions, schedules and state: values as JSON.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::{ClaimState, OrderKey, RunMark, Suspicion};
use crate::event::Priority;
use crate::id::EventId;
use crate::name::{HandlerId, SessionId};
use crate::record::{RowError, decode, encode, is_zero, row};
use crate::state::{StateChange, StateCommit};
use crate::stream::Offset;
use crate::text_in_row;
use crate::time::Timestamp;

row!(HandlerRow);
row!(LaneRow);
row!(ClaimRow);
row!(FinishedRow);
row!(DeadLetterRow);
row!(SessionRow);
row!(ScheduleRow);
row!(HeadRow);
row!(VersionRow);
row!(StateCommitRow);
row!(SchemaRow);

/// A handler that has been seen. `namespace/handler`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerRow {
    /// The event type it takes.
    pub topic: String,
    pub registered: Timestamp,
    /// Somebody has paused it from outside: no session claims events for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How far a handler has looked in one lane of one stream. A missing row means: nowhere, begin at the stream's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRow {
    /// Every event of the lane below this has been claimed at least once, or filed behind its key (`HandlerOrder::Key`).
    pub next: Offset,
    /// In the row of the plain lane: every event of the other lanes below this has been claimed at least once. What
    /// lies beyond, the rows of those lanes say; they are removed when this catches up.
    #[serde(default)]
    pub off: Offset,
}

impl LaneRow {
    /// For the plain lane of a handler that wants nothing below `offset`, whatever its priority.
    pub fn from_now(offset: Offset) -> LaneRow {
        LaneRow { next: offset, off: offset }
    }

    /// Events of the stream at or above this may still be unseen by the handler.
    pub fn unseen_from(&self) -> Offset {
        self.next.min(self.off)
    }
}

/// An open claim. Its key begins with handler and `due`, so the first rows of a handler are the next to be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// Counts the claims of this event by this handler: rises with each, so no two rows of one event are ever equal. 0 =
    /// the event has only been filed behind an earlier one of its key.
    pub generation: u64,
    pub state: ClaimState,
    /// Until when the lease holds, or when the next try may begin. Stands in the key as well.
    pub due: Timestamp,
    /// How long before `due` that was decided: no clock that is right shows a time from which it lies further ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Who has it, or had it last.
    pub session: Option<SessionId>,
    pub claimed_at: Timestamp,
    /// Runs that failed, and runs that had started when their lease ended.
    pub attempts: u32,
    /// Runs since the last such attempt whose commit met state that had changed since it was read: they count as none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub conflicts: u32,
    /// Of the run under this lease.
    #[serde(default, skip_serializing_if = "RunMark::is_unknown")]
    pub run: RunMark,
    #[serde(default, skip_serializing_if = "Suspicion::is_none")]
    pub suspicion: Suspicion,
    /// Commits the handler has made under this event, over all tries: their events are stored already.
    #[serde(default)]
    pub steps: u32,
    /// How often a run has put the event off without counting an attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snoozes: u32,
    /// Of the event, so that claims can be put in order without reading it.
    pub priority: Priority,
    pub ts: Timestamp,
    /// The key of the event, if the claim was made in order of keys. Absent in rows of other claims, whatever the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_key: Option<OrderKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The key of the dead letter whose replay opened this claim. The letter stays until the claim has ended, hidden from
    /// lists: should the log lose the event, or the handler be forgotten first, the letter's copy is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
}

/// How an event ended for one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Acked,
    DeadLettered,
    /// The event was damaged or removed before the handler could have it.
    Lost,
    /// The handler wanted nothing more to do with it: finished without success, and without a dead letter.
    Discarded,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedRow {
    pub ending: Ending,
    pub at: Timestamp,
    pub attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An event given up on by one handler, with a copy of all that is needed to send it again; `payload`, `key` and `headers`
/// are the event's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRow {
    pub event_id: EventId,
    pub event_type: String,
    pub partition: u32,
    pub offset: Offset,
    pub handler: HandlerId,
    pub session: Option<SessionId>,
    pub attempts: u32,
    pub error: String,
    pub failed_at: Timestamp,
    /// JSON text as it was. `None` = the event was too large to be copied, `key` and `headers` are left out with it: it
    /// stands at `partition` and `offset`, until retention takes it.
    #[serde(default, with = "text_in_row", skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// JSON text as it was.
    #[serde(default, with = "text_in_row", skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    pub priority: Priority,
    pub root: Option<EventId>,
    pub depth: u32,
    /// [`ClaimRow::steps`] when the handler gave up: a replay does not store the events of these commits again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub steps: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub started: Timestamp,
    pub heartbeat: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// Runs that take longer than they may and have not returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hanging: Vec<HangingRow>,
    /// How its runs ended, as of the heartbeat.
    #[serde(default)]
    pub counts: RunCounts,
}

/// A run of a handler that takes longer than it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangingRow {
    pub handler: HandlerId,
    pub event: EventId,
    /// When the run began.
    pub since: Timestamp,
    /// Its timeout is over: the event is tried again without it. Otherwise it has no timeout, and its lease is over.
    pub cut_off: bool,
}

/// How runs of a session ended since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunCounts {
    pub succeeded: u64,
    /// To be tried again; those that timed out as well.
    pub failed: u64,
    pub timed_out: u64,
    pub snoozed: u64,
    pub discarded: u64,
    pub dead_lettered: u64,
}

/// A schedule as its users left it, and when it fired last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRow {
    pub cron: String,
    /// A name of the IANA database, or `UTC`.
    pub zone: String,
    pub event_type: String,
    pub enabled: bool,
    /// The latest time this schedule has fired for, or where it began to count.
    pub last: Timestamp,
    pub fires: u64,
}

/// The newest state of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadRow {
    /// JSON object with sorted keys, as text.
    pub fields: String,
    pub commit: StateCommit,
    pub schema: u32,
}

/// One version of an identity; without fields it was retracted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<String>,
    pub schema: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCommitRow {
    pub at: Timestamp,
    pub meta: BTreeMap<String, String>,
    pub changes: Vec<StateChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventId>,
}

/// What a type looked like when it was last written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaRow {
    pub version: u32,
    /// Field name to the name of its type, as the derive macro spells it.
    pub fields: BTreeMap<String, String>,
    /// Fields that were added without a new version, because rows need not have them. Apart from `fields`, so that
    /// versions of Millrace that compare those alone still fit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added: BTreeMap<String, String>,
    /// Of fields and added ones: what serde takes for each. Absent for rows of older versions until somebody writes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, String>,
    /// Which of them rows may lack.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub optional: BTreeSet<String>,
    /// No row of this version is older than this commit.
    pub since: StateCommit,
    /// Rows of older versions are being rewritten: nobody else may write this type.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewriting: bool,
}
