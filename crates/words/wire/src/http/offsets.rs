//! `GET /topics/{topic}/offsets`.

use std::collections::BTreeMap;

use millrace_model::{Group, Offset, Partition, Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicOffsets {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    pub partitions: Vec<PartitionOffsets>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartitionOffsets {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    /// The first offset still there.
    #[schemars(schema_with = "schema::offset")]
    pub start: Offset,
    /// The offset the next event will get.
    #[schemars(schema_with = "schema::offset")]
    pub next: Offset,
    #[schemars(with = "BTreeMap<String, GroupOffsets>")]
    pub groups: BTreeMap<Group, GroupOffsets>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupOffsets {
    #[schemars(schema_with = "schema::offset")]
    pub committed: Offset,
    /// When the group's commit got this value; absent if a version wrote it that did not record the time.
    #[serde(rename = "updatedTs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ts")]
    pub updated: Option<Timestamp>,
    pub lag: u64,
    pub inflight: u64,
}
