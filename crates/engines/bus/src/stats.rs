//! Counters and gauges of the engine.

use std::collections::BTreeMap;

use millrace_model::{Group, Offset, Partition, TopicKey};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events appended to topics of users, without the server's own topics.
    pub published: u64,
    /// Events the server wrote to its own topics.
    pub system: u64,
    pub duplicates: u64,
    pub delivered: u64,
    pub acked: u64,
    pub nacked: u64,
    pub redelivered: u64,
    pub timed_out: u64,
    /// Deliveries that were no attempt: their connection was lost while it worked on another event, or left its group.
    pub given_back: u64,
    pub dead_lettered: u64,
    /// Events a group never saw because retention removed them first.
    pub skipped: u64,
    /// Delayed events that could not be read when they were due and were set aside.
    pub quarantined: u64,
    /// Events a group's filter turned away.
    pub filtered: u64,
    /// States of the engine that cannot occur but did: see [`Bus::never_count`](crate::Bus::never_count).
    pub never: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicCounters {
    pub published: u64,
    pub delivered: u64,
}

/// Gauges of a group on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupGauges {
    pub topic: TopicKey,
    pub group: Group,
    pub inflight: u64,
    pub lag: u64,
    pub paused: bool,
    /// The first event that is not done, in each partition with a lag.
    pub behind: Vec<(Partition, Offset)>,
}

/// A snapshot: counters since start, gauges as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub counters: Counters,
    /// How many topics have an access list.
    pub topics_with_access: u64,
    pub by_topic: BTreeMap<TopicKey, TopicCounters>,
    /// In the order of topics, then of groups.
    pub by_group: Vec<GroupGauges>,
    pub connections: u64,
    pub topics: u64,
    pub groups: u64,
    pub subscriptions: u64,
    pub inflight: u64,
    pub lag: u64,
    /// Bytes of fresh events kept in memory, and of events read ahead for groups.
    pub tail_bytes: u64,
    pub fetched_bytes: u64,
    pub delayed: bool,
    pub commits_pending: u64,
    pub storage_failed: Option<String>,
    pub stopping: bool,
}
