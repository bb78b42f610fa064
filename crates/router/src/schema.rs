//! JSON Schemas of `data`: compiled once, asked for every message.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// A schema and its compiled form. `Schema::any()` accepts everything and costs nothing.
#[derive(Clone)]
pub struct Schema {
    pub(crate) document: Arc<Value>,
    pub(crate) validator: Option<Arc<jsonschema::Validator>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no JSON Schema: {0}")]
pub struct SchemaError(pub String);

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.document)
    }
}
