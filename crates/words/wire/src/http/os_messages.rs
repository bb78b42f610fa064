//! `POST /os/messages`: a message of the CQRS loop and its outcome, as schemas. `crate::os` reads and writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message, as docs/router.md describes it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OsMessageDoc {
    /// `command`, `query`, `event`, `reply` or `error`.
    pub kind: String,
    /// `Domain.Action`.
    #[serde(rename = "type")]
    pub ty: String,
    pub data: Value,
    pub metadata: OsMetadataDoc,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OsMetadataDoc {
    pub id: String,
    pub timestamp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
    /// Of an outcome: the id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<String>,
    /// Further members are passed on.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The answer to an event, which has no outcome.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OsAccepted {
    pub accepted: bool,
}
