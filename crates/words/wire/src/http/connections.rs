//! `GET /connections`: who is connected.

use millrace_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionList {
    /// WebSockets of the bus, then those of the CQRS loop, then the Unix socket; of each the oldest first.
    pub connections: Vec<ConnectionDoc>,
    /// Present if there are more: send it as `after` to get the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionDoc {
    /// `ws-17`: the door and a number that is never used twice while the server runs. The number of a WebSocket of the
    /// bus is the one that groups show for their members.
    pub id: String,
    /// `ws` (the bus), `os` (the CQRS loop) or `socket` (the loop's Unix socket).
    pub door: String,
    /// The agent that a token named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Address and port of the client; the Unix socket has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The namespace of a WebSocket of the bus; messages of the loop name theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[schemars(schema_with = "schema::ts")]
    pub since: Timestamp,
    pub subscriptions: u64,
    /// Events that the client holds; of the loop, messages that are not answered.
    pub inflight: u64,
    /// Bytes that wait for the client to read, about.
    pub unread_bytes: u64,
    /// So much is unread that the client is sent nothing more, or its messages are not taken.
    pub congested: bool,
}
