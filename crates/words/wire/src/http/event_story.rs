//! `GET /events/{id}`: one event, what caused it, and how far everybody is with it.

use millrace_model::{Group, Offset, Partition, Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::schema;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventStory {
    /// The envelope, as every reader gets it.
    #[schemars(with = "serde_json::Value")]
    pub event: Box<RawValue>,
    pub lineage: LineageDoc,
    /// The W3C trace that the event's author named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// Durable handlers that have to do with the event.
    pub claims: Vec<ClaimDoc>,
    /// The groups of the topic.
    pub groups: Vec<GroupStanding>,
    /// Dead letters of the event, the oldest first.
    pub letters: Vec<LetterPlace>,
    /// Events that were published again from one of these letters.
    pub replays: Vec<EventPlace>,
    /// False if there may be letters or replays behind those that the server looked at.
    pub complete: bool,
    /// Payload, key, header values, reasons and errors are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LineageDoc {
    /// The event that began the chain; absent = this event itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// How many handlers lie between the root and this event.
    #[serde(default)]
    pub depth: u32,
    /// The event or message that directly caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
}

/// An event and a durable handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimDoc {
    pub handler: String,
    /// `pending`, `claimed`, `acked`, `discarded`, `lost` or `dead_lettered`.
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupStanding {
    #[schemars(schema_with = "schema::group")]
    pub group: Group,
    /// `waiting`, `inflight`, `done` or `deadLettered`.
    pub state: String,
    /// Deliveries so far, the one under way included; 0 when the group is through with the event.
    pub attempts: u32,
    /// The connection that holds the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// Its agent, if it brought a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Why the last delivery failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LetterPlace {
    #[schemars(schema_with = "schema::topic")]
    pub dlq: TopicName,
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub offset: Offset,
    pub id: String,
    #[schemars(schema_with = "schema::ts")]
    pub ts: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventPlace {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub offset: Offset,
    pub id: String,
    #[schemars(schema_with = "schema::ts")]
    pub ts: Timestamp,
}
