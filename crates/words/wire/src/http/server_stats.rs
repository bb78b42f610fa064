//! The figures of `GET /stats` beyond the counters of the bus, and `GET /stats/history`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::StatsDoc;

/// `GET /stats`. Counters since the start of the server, gauges as of now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerStatsDoc {
    #[serde(flatten)]
    pub stats: StatsDoc,
    pub server: ServerFigures,
    /// By topic and group, for one namespace.
    pub by_group: BTreeMap<String, BTreeMap<String, GroupFigures>>,
    /// Groups left out of `byGroup`, because there are more than the server names.
    pub groups_left_out: u64,
    /// The CQRS loop; absent if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<LoopFigures>,
    /// Refusals by error code, without codes that never occurred.
    pub refusals: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerFigures {
    pub commits: u64,
    pub commit_batches: u64,
    pub commit_events: u64,
    /// Time spent in commits, their syncs included.
    pub commit_seconds: f64,
    /// How long commits took: `[upper bound in microseconds, commits]`; the last bound is 0 and means no bound.
    pub commit_micros: Vec<(u64, u64)>,
    pub commits_retried: u64,
    pub backlog_batches: u64,
    pub backlog_bytes: u64,
    pub backlog_bytes_max: u64,
    pub requests_waiting: u64,
    pub outbound_bytes: u64,
    pub tail_bytes: u64,
    pub fetched_bytes: u64,
    /// Bytes of the store's file, of its write-ahead log, and free on its disk; absent for a store without a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// WebSockets, and how many there may be.
    pub connections: u64,
    pub connections_max: u64,
    /// Tails and waiting searches, and how many there may be.
    pub tails: u64,
    pub tails_max: u64,
    /// Why nothing is written any more, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_failed: Option<String>,
    /// Why nothing can be published at the moment, or why a commit waits, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    pub stopping: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupFigures {
    pub lag: u64,
    /// How long the oldest event that is not done has been stored; 0 without a lag, absent if it could not be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    pub inflight: u64,
    pub paused: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LoopFigures {
    pub clients: u64,
    pub pending_requests: u64,
    pub timers: u64,
    pub capabilities: u64,
    pub unhealthy: u64,
}

/// `GET /stats/history`: figures over time. A counter is given as it grew in each step; a gauge as its largest value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatsHistory {
    /// Milliseconds from one point to the next.
    pub step: u64,
    pub from: u64,
    pub to: u64,
    pub series: Vec<SeriesDoc>,
    /// False if the server looked at as many records as it may and there were more.
    pub complete: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesDoc {
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: String,
    /// `[time, value]`; the value is null where the server did not run, or wrote nothing.
    pub points: Vec<(u64, Option<f64>)>,
}
