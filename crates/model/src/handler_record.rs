//! Rows of the small tables that belong to durable handlers, sessions, schedules and state: values as JSON.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::ClaimState;
use crate::event::Priority;
use crate::id::EventId;
use crate::name::{HandlerId, SessionId};
use crate::record::{RowError, decode, encode, row};
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
}

/// How far a handler has looked in one lane of one stream. A missing row means: nowhere, begin at the stream's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRow {
    /// Every event of the lane below this has been claimed at least once.
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
    /// Counts the claims of this event by this handler: rises with each, so no two rows of one event are ever equal.
    pub generation: u64,
    pub state: ClaimState,
    /// Until when the lease holds, or when the next try may begin. Stands in the key as well.
    pub due: Timestamp,
    /// Who has it, or had it last.
    pub session: Option<SessionId>,
    pub claimed_at: Timestamp,
    /// Tries that failed or whose lease ran out.
    pub attempts: u32,
    /// Commits the handler has made under this event, over all tries: their events are stored already.
    #[serde(default)]
    pub steps: u32,
    /// Of the event, so that claims can be put in order without reading it.
    pub priority: Priority,
    pub ts: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How an event ended for one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Acked,
    DeadLettered,
    /// The event was damaged or removed before the handler could have it.
    Lost,
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
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub started: Timestamp,
    pub heartbeat: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Timestamp>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaRow {
    pub version: u32,
    /// Field name to the name of its type, as the derive macro spells it.
    pub fields: BTreeMap<String, String>,
    /// No row of this version is older than this commit.
    pub since: StateCommit,
    /// Rows of older versions are being rewritten: nobody else may write this type.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rewriting: bool,
}
