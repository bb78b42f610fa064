//! `POST /jobs`, `GET /jobs`, `GET /jobs/{job}`: work over many dead letters that the server does by itself.

use millrace_model::{Offset, Partition, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::schema;

/// The work to do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobRequest {
    pub kind: JobKind,
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[serde(default)]
    pub filter: JobFilter,
    /// Most letters per second; as many as possible if absent.
    #[serde(default)]
    pub rate_per_second: Option<u64>,
    /// Only count the letters.
    #[serde(default)]
    pub dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    Replay,
    Delete,
}

/// All conditions that are given must hold; at least one is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JobFilter {
    /// The group that gave up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The whole reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Letters from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Letters before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u64>,
}

impl JobRequest {
    pub fn parse(text: &str) -> Result<JobRequest, FrameError> {
        let request: JobRequest = serde_json::from_str(text)
            .map_err(|error| FrameError::bad_frame(format!("the job cannot be read: {error}")))?;
        if request.filter == JobFilter::default() {
            let why = "filter is empty: give at least one of group, reason, from and to";
            return Err(FrameError::bad_frame(why.to_owned()));
        }
        if request.rate_per_second == Some(0) {
            return Err(FrameError::bad_frame("ratePerSecond is 0: give at least 1".to_owned()));
        }
        Ok(request)
    }
}

/// The number of letters that a job would be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobPreview {
    pub total: u64,
    /// False if there were more letters than the server counts.
    pub complete: bool,
}

/// A job, as it is stored and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobDoc {
    pub job: String,
    pub kind: JobKind,
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    pub filter: JobFilter,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_second: Option<u64>,
    /// `running`, `done`, `cancelled` or `failed`.
    pub state: String,
    /// Letters that matched when the job began, as far as they were counted.
    pub total: u64,
    /// There were more letters than the server counts, so `total` may be too small.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub total_is_least: bool,
    /// Letters that are dealt with.
    pub done: u64,
    pub replayed: u64,
    /// Letters that had been replayed before.
    pub duplicates: u64,
    pub deleted: u64,
    /// Letters that could not be replayed: they have no payload, or do not match the topic's schema.
    pub failed: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<JobFailure>,
    /// The agent that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub started_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The reason in the filter, the error, or the details of failures are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

impl JobDoc {
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }
}

/// A letter that a job could not replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobFailure {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub offset: Offset,
    /// Empty if it is withheld from the caller.
    pub detail: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobList {
    /// The newest first.
    pub jobs: Vec<JobDoc>,
}
