//! `GET /topics/{topic}/groups`.

use millrace_model::{Filter, Group, Partition, Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::offsets::GroupOffsets;
use crate::schema;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupList {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    pub groups: Vec<GroupDoc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupDoc {
    #[schemars(schema_with = "schema::group")]
    pub group: Group,
    /// How many connections are subscribed to the group.
    pub members: u64,
    /// An operator holds the group's deliveries back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    #[schemars(schema_with = "schema::ts")]
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::filter")]
    pub filter: Option<Filter>,
    /// The filter is withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    pub partitions: Vec<GroupPlace>,
}

/// How far the group is in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupPlace {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[serde(flatten)]
    pub at: GroupOffsets,
}
