//! The versions of a topic's schema.

use std::sync::Arc;

use millrace_model::{Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema;

/// `GET /topics/{topic}/schemas`: the versions that are kept, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchemaList {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    /// The version in force; absent if the topic has no schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u32>,
    pub versions: Vec<SchemaDoc>,
}

/// A version of a topic's schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchemaDoc {
    pub version: u32,
    /// When the schema was set.
    #[schemars(schema_with = "schema::ts")]
    pub set: Timestamp,
    /// Whether the schema was set without comparing it with retained events.
    pub forced: bool,
    #[schemars(schema_with = "schema::json_schema")]
    pub schema: Arc<Value>,
}
