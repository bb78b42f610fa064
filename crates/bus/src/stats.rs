//! What the engine counts.

use std::collections::BTreeMap;

use millrace_model::TopicKey;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub published: u64,
    pub duplicates: u64,
    pub delivered: u64,
    pub acked: u64,
    pub nacked: u64,
    pub redelivered: u64,
    pub timed_out: u64,
    pub dead_lettered: u64,
    /// Events a group never saw because retention removed them first.
    pub skipped: u64,
    /// Delayed events that could not be read when they were due and were set aside.
    pub quarantined: u64,
    /// Events a group's filter turned away.
    pub filtered: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicCounters {
    pub published: u64,
    pub delivered: u64,
}

/// A snapshot: counters since start, gauges as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub counters: Counters,
    pub by_topic: BTreeMap<TopicKey, TopicCounters>,
    pub connections: u64,
    pub topics: u64,
    pub groups: u64,
    pub subscriptions: u64,
    pub inflight: u64,
    pub lag: u64,
    pub delayed: bool,
    pub commits_pending: u64,
    pub storage_failed: Option<String>,
    pub stopping: bool,
}
