//! `GET /topics/{topic}/groups`.

use millrace_model::{Filter, Group, Partition, Timestamp, TopicName};
use serde::{Deserialize, Serialize};

use crate::http::offsets::GroupOffsets;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupList {
    pub topic: TopicName,
    pub groups: Vec<GroupDoc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDoc {
    pub group: Group,
    /// Connections subscribed to it.
    pub members: u64,
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    pub partitions: Vec<GroupPlace>,
}

/// How far the group is in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPlace {
    pub partition: Partition,
    #[serde(flatten)]
    pub at: GroupOffsets,
}
