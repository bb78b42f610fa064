//! `GET /whoami` and `GET /namespaces`: what a caller may do, and where.

use millrace_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhoAmI {
    /// The agent that the token stands for; absent where no token is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The caller's scopes; `admin` includes the others.
    pub scopes: Vec<String>,
    /// The namespaces that the caller may use; `*` stands for all.
    pub namespaces: Vec<String>,
    /// The server has no tokens: everybody may do everything.
    pub open: bool,
    pub version: String,
    #[schemars(schema_with = "schema::ts")]
    pub started_at: Timestamp,
    /// The server's time.
    #[schemars(schema_with = "schema::ts")]
    pub now: Timestamp,
    pub limits: Limits,
}

/// Bounds that a client should know before it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Bytes of one event.
    pub frame_bytes_max: u64,
    /// Events of one page.
    pub page_events_max: u64,
    /// Topics of one page.
    pub list_max: u64,
    /// Events that one search looks at.
    pub scan_max: u64,
    /// Tails and waiting searches at a time, over all callers.
    pub tails_max: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamespaceList {
    pub namespaces: Vec<NamespaceDoc>,
    /// Present if there are more: send it as `after` to get the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceDoc {
    pub namespace: String,
    /// Without the server's own topics.
    pub topics: u64,
    pub groups: u64,
    /// Durable handlers, at most a few seconds old like the two counts below.
    pub handlers: u64,
    /// Events that handlers have not finished; an event counts for each of its handlers.
    pub pending_events: u64,
    /// Events that handlers gave up on.
    pub handler_letters: u64,
    /// Letters of groups, in all `.DLQ` topics.
    pub dead_letters: u64,
}
