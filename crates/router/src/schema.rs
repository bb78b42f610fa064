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

impl Schema {
    pub fn any() -> Schema {
        Schema { document: Arc::new(Value::Bool(true)), validator: None }
    }

    pub fn new(document: Value) -> Result<Schema, SchemaError> {
        let validator =
            jsonschema::validator_for(&document).map_err(|error| SchemaError(error.to_string()))?;
        Ok(Schema { document: Arc::new(document), validator: Some(Arc::new(validator)) })
    }

    pub fn check(&self, data: &millrace_model::JsonText) -> Result<(), String> {
        let Some(validator) = &self.validator else { return Ok(()) };
        let value: Value = serde_json::from_str(data.as_str()).map_err(|error| error.to_string())?;
        validator.validate(&value).map_err(|error| error.to_string())
    }
}
