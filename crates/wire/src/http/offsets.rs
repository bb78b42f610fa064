//! `GET /topics/{topic}/offsets`.

use std::collections::BTreeMap;

use millrace_model::{Group, Offset, Partition, TopicName};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicOffsets {
    pub topic: TopicName,
    pub partitions: Vec<PartitionOffsets>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionOffsets {
    pub partition: Partition,
    /// The first offset still there.
    pub start: Offset,
    /// The offset the next event will get.
    pub next: Offset,
    pub groups: BTreeMap<Group, GroupOffsets>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupOffsets {
    pub committed: Offset,
    pub lag: u64,
    pub inflight: u64,
}
