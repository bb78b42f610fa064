//! `GET /stats`: the metrics object of the source document (the original specification of the bus), and further
//! counters and gauges.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counters since start, gauges as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StatsDoc {
    pub uptime_ms: u64,
    pub published: u64,
    pub duplicates: u64,
    pub delivered: u64,
    pub acks: u64,
    pub nacks: u64,
    pub redeliveries: u64,
    pub timeouts: u64,
    pub dead_letters: u64,
    pub skipped: u64,
    pub filtered: u64,
    pub inflight: u64,
    pub lag: u64,
    pub connections: u64,
    pub subscriptions: u64,
    pub topics: u64,
    pub groups: u64,
    pub by_topic: BTreeMap<String, TopicStats>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicStats {
    #[serde(rename = "pub")]
    pub published: u64,
    #[serde(rename = "del")]
    pub delivered: u64,
}
