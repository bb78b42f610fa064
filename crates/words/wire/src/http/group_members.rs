//! `GET /topics/{topic}/groups/{group}` and what belongs to it: a group, its members, and what they hold.

use millrace_model::{Filter, Group, Offset, Partition, Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::offsets::GroupOffsets;
use crate::schema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupPage {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::group")]
    pub group: Group,
    /// An operator holds the group's deliveries back.
    pub paused: bool,
    #[schemars(schema_with = "schema::ts")]
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::filter")]
    pub filter: Option<Filter>,
    /// The filter is withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    pub lag: u64,
    /// How long the oldest event that is not done has been stored; 0 without a lag, absent if it could not be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    pub inflight: u64,
    /// How long a member may hold an event.
    pub ack_timeout_ms: u64,
    pub members: Vec<MemberDoc>,
    pub partitions: Vec<GroupPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberDoc {
    /// The number of the connection, never used twice while the server runs.
    pub connection: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub since: Option<Timestamp>,
    pub max_inflight: u32,
    /// Delivery credits left; absent if only the window bounds deliveries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<u64>,
    pub inflight: u32,
    /// The connection does not read what it was sent.
    pub congested: bool,
    /// How long the member has held the event that it has held longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupPartition {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[serde(flatten)]
    pub at: GroupOffsets,
    /// The time of the last event that is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub committed_ts: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
}

/// `GET /topics/{topic}/groups/{group}/inflight`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InflightList {
    pub inflight: Vec<InflightDoc>,
    /// There are more than the server lists.
    pub more: bool,
    /// Reasons are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InflightDoc {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub offset: Offset,
    /// Absent if the event is not in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The delivery under way included.
    pub attempts: u32,
    /// `leased`: a member holds it; `ready`: it waits for a member; `later`: it waits for its time.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// When it was delivered, derived from the end of the lease: inexact if the topic's time was changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub delivered_at: Option<Timestamp>,
    /// The end of the lease, or of the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub until: Option<Timestamp>,
    /// Why the last delivery failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `POST /topics/{topic}/groups/{group}/pause` and `/resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPaused {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::group")]
    pub group: Group,
    pub paused: bool,
}
