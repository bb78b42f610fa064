//! `GET /trace`: everything that an event or a message goes back to, and everything that followed from it.

use millrace_model::{Offset, Partition, Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// The id of the event or message that all of it goes back to; with `correlation`, that correlation.
    pub root: String,
    /// In order of time. A parent may be on an earlier page, or not be stored any more. If the same id comes again on a
    /// later page, the later node says more.
    pub nodes: Vec<TraceNode>,
    /// False if there may be more: behind `next`, or because a bound of the server was reached.
    pub complete: bool,
    /// How many events were looked at for this page.
    pub scanned: u64,
    /// Send it as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Reasons, errors and the trace ids of authors are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceNode {
    /// Unique in the trace. Of an event, a letter and a replay: the event's id; of a message: its id, with `#` and a
    /// number if the id occurs again; of a delivery: `EVENT/group/GROUP`; of a claim: `EVENT/handler/HANDLER`.
    pub id: String,
    /// The node that caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub what: TraceWhat,
    /// The topic, the type of the message, the group, the handler or the schedule.
    #[serde(rename = "type")]
    pub ty: String,
    #[schemars(schema_with = "schema::ts")]
    pub at: Timestamp,
    /// When it ended, or, of something that waits, when it is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Of a message: who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The agent or connection, the session or the capabilities that have it or got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Of an event `stored`, of a letter `kept` or `replayed`, of what is not due yet `waiting`; otherwise as in
    /// `GET /events/{id}` and `Syscall.Trace`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Why it failed, or why the last attempt did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where the event is; of a delivery and a claim: where their event is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<TracePlace>,
    /// The W3C trace that the event's author named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TraceWhat {
    Event,
    /// A message of the CQRS loop.
    Message,
    /// An event and a group.
    Delivery,
    /// An event and a durable handler.
    Claim,
    /// A timer of the loop, or a delayed event that is not due yet.
    Timer,
    /// A fire of a schedule.
    Schedule,
    /// A dead letter of a group.
    Letter,
    /// An event that was published again from a dead letter.
    Replay,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracePlace {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub offset: Offset,
}
