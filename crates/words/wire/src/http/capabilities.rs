//! `GET /capabilities`: who answers the messages of the CQRS loop.

use millrace_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityList {
    /// By name.
    pub capabilities: Vec<CapabilityDoc>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityDoc {
    pub name: String,
    pub description: String,
    /// `built-in`, `rust` (added by the program around the server), `child` (a process) or `wasm` (a process that runs a
    /// WebAssembly guest).
    pub kind: String,
    /// `healthy`, `unhealthy` (takes no messages) or `leaving` (finishes the messages it has).
    pub health: String,
    /// Why it is unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often it has begun again after it ended by itself.
    pub restarts: u64,
    /// When it was installed.
    #[schemars(schema_with = "schema::ts")]
    pub since: Timestamp,
    /// The process, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Messages in its mailbox, the one in progress and those included that wait for a place in it.
    pub mailbox: u64,
    /// Its own requests that are not answered yet.
    pub asked: u64,
    /// Requests that wait for its answer.
    pub owes: u64,
    pub handles: Vec<HandledDoc>,
    /// Types of events that it gets.
    pub subscribes: Vec<String>,
    /// Topics of the bus that it is fed.
    pub topics: Vec<FedTopicDoc>,
}

/// A message that a capability takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandledDoc {
    /// `command`, `query` or `event`.
    pub kind: String,
    #[serde(rename = "type")]
    pub ty: String,
    pub description: String,
    /// The JSON Schema of the message's data.
    pub input: Value,
    /// The JSON Schema of the reply's data.
    pub output: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FedTopicDoc {
    pub topic: String,
    /// The group that the capability reads as.
    pub group: String,
}
