//! Events that the server publishes about itself: payloads of `system.metrics` and `system.bus.audit`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::http::StatsDoc;

/// The payload of `system.metrics`: `GET /stats`, and what the store and the connections are doing. Counters since the
/// start of the server, gauges as of now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsDoc {
    #[serde(flatten)]
    pub stats: StatsDoc,
    /// Events the server wrote to its own topics; they are not in `published`.
    pub system: u64,
    pub commits: u64,
    pub commit_batches: u64,
    pub commit_events: u64,
    /// Time spent in commits, their syncs included.
    pub commit_seconds: f64,
    pub backlog_batches: u64,
    pub backlog_bytes: u64,
    pub requests_waiting: u64,
    pub outbound_bytes: u64,
    pub tail_bytes: u64,
    pub fetched_bytes: u64,
    /// Refusals by error code, without codes that never occurred.
    pub refusals: BTreeMap<String, u64>,
    pub by_group: BTreeMap<String, BTreeMap<String, GroupStats>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStats {
    pub lag: u64,
    pub inflight: u64,
}

/// The payload of `system.bus.audit`. Fields that do not apply are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditDoc {
    /// The kind of record, e.g. `refused`, `topic_deleted`, `published`.
    pub kind: String,
    /// When it happened, in milliseconds since 1970.
    pub ts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The subject of the act, if it is neither a topic nor a group: a handler, a schedule, a delayed event or a timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// How many events the record is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The decision about a failed delivery: `again`, `later` or `dead_letter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// The error code of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The request: a frame's type, or method and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}
