//! Rows of the small tables that belong to durable handlers, sessions, schedules and state: values as JSON.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clocks::time::Timestamp;
use crate::handling::claim::{ClaimState, OrderKey, RunMark, Suspicion};
use crate::handling::state::{StateChange, StateCommit};
use crate::log::event::Priority;
use crate::log::id::EventId;
use crate::log::stream::Offset;
use crate::rows::record::{RowError, decode, encode, is_zero, row};
use crate::rows::text_in_row;
use crate::topics::name::{HandlerId, SessionId};

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

/// A registered handler. Key: `namespace/handler`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandlerRow {
    /// The event type that the handler takes.
    pub topic: String,
    pub registered: Timestamp,
    /// The handler was paused from outside: no session claims events for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How far a handler has read in one lane of one stream. Without a row it begins at the stream's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRow {
    /// Every event of the lane below this has been claimed at least once, or filed behind its key
    /// (`HandlerOrder::Key`).
    pub next: Offset,
    /// In the row of the plain lane: every event of the other lanes below this has been claimed at least once. How far
    /// each of them is beyond this, their own rows say; those are removed when this catches up.
    #[serde(default)]
    pub off: Offset,
}

impl LaneRow {
    /// Returns the plain lane's row of a handler that wants no event below `offset`, whatever its priority.
    pub fn from_now(offset: Offset) -> LaneRow {
        LaneRow { next: offset, off: offset }
    }

    /// Returns the lowest offset at which an event may still be unseen by the handler.
    pub fn unseen_from(&self) -> Offset {
        self.next.min(self.off)
    }
}

/// An open claim. Its key begins with handler and `due`, so the first rows of a handler are those that are due first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// How often this handler has claimed this event: rises with each claim, so no two rows of one event are ever
    /// equal. 0 = the event was never claimed, only recorded as waiting behind an earlier one of its key.
    pub generation: u64,
    pub state: ClaimState,
    /// When the lease ends, or when the next attempt may begin. Part of the key as well.
    pub due: Timestamp,
    /// How long before `due` that time was set. By a correct clock `due` can never be further ahead than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// The session that holds the claim, or held it last.
    pub session: Option<SessionId>,
    pub claimed_at: Timestamp,
    /// Runs that failed, and runs that had started when their lease ended.
    pub attempts: u32,
    /// Runs since the last such attempt whose commit failed because state had changed since it was read. They do not
    /// count as attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub conflicts: u32,
    /// The mark of the run under this lease.
    #[serde(default, skip_serializing_if = "RunMark::is_unknown")]
    pub run: RunMark,
    #[serde(default, skip_serializing_if = "Suspicion::is_none")]
    pub suspicion: Suspicion,
    /// How many commits the handler has made for this event, over all attempts: the events of these commits are stored
    /// already.
    #[serde(default)]
    pub steps: u32,
    /// How often a run has postponed the event (snooze) without counting an attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub snoozes: u32,
    /// Priority and time of the event, so that claims can be ordered without reading it.
    pub priority: Priority,
    pub ts: Timestamp,
    /// The hash of the event's key, if the claim was made in [`HandlerOrder::Key`](crate::HandlerOrder::Key). Absent in
    /// rows of other claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_key: Option<OrderKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The key of the dead letter whose replay opened this claim. The letter stays until the claim has ended, hidden
    /// from lists: if the log loses the event, or the handler is removed first, the letter's copy is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
}

/// How an event ended for one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Acked,
    DeadLettered,
    /// The event was damaged or removed before the handler could take it.
    Lost,
    /// The handler discarded the event: finished without success and without a dead letter.
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

/// An event that one handler gave up on, with a copy of everything that is needed to send it again; `payload`, `key`
/// and `headers` are the event's own.
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
    /// The original JSON text. `None` = the event was too large to be copied; `key` and `headers` are then left out,
    /// too. The event is at `partition` and `offset` until retention removes it.
    #[serde(default, with = "text_in_row", skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The original JSON text.
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
    /// Runs that take longer than they may and have not returned yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hanging: Vec<HangingRow>,
    /// How the session's runs ended, as of the heartbeat.
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
    /// True: the run's timeout is over and the event is attempted again without it. False: the run has no timeout, and
    /// its lease is over.
    pub cut_off: bool,
}

/// How runs of a session ended since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunCounts {
    pub succeeded: u64,
    /// Runs whose event is to be attempted again, those that timed out included.
    pub failed: u64,
    pub timed_out: u64,
    pub snoozed: u64,
    pub discarded: u64,
    pub dead_lettered: u64,
}

/// A schedule as its users set it, and when it fired last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleRow {
    pub cron: String,
    /// A time zone of the IANA database, or `UTC`.
    pub zone: String,
    pub event_type: String,
    pub enabled: bool,
    /// The latest time for which this schedule has fired, or the time from which it counts.
    pub last: Timestamp,
    pub fires: u64,
    /// The planned time of the latest fire. Absent before the first one, and in rows of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<Timestamp>,
    /// Somebody asked at this time for one fire beside the planned ones. The session that makes the fire removes this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Timestamp>,
}

/// The newest state of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadRow {
    /// JSON object with sorted keys, as text.
    pub fields: String,
    pub commit: StateCommit,
    pub schema: u32,
}

/// A version of an identity; without fields the identity was retracted.
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

/// The schema of a type of state as it was last written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaRow {
    pub version: u32,
    /// Field name to the name of its type, as the derive macro spells it.
    pub fields: BTreeMap<String, String>,
    /// Fields that were added without a new version, because rows need not have them. Kept apart from `fields`, so that
    /// versions of Millrace that compare only those still accept the type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added: BTreeMap<String, String>,
    /// For `fields` and `added`: the shape of JSON that serde accepts for each. Absent in rows of older versions until
    /// somebody writes the type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, String>,
    /// The fields that rows may lack.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub optional: BTreeSet<String>,
    /// No row of this version is older than this commit.
    pub since: StateCommit,
    /// Rows of older versions are being rewritten: nobody else may write this type.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewriting: bool,
}
