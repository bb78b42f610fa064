//! A single spelling per JSON value: object keys sorted at every level, no spaces. Two states are equal exactly if
//! their texts are.

use millrace_model::{JSON_DEPTH_MAX, JsonText};
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    #[error("it cannot be written as JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("it is written as {found}, and must be a JSON object of its fields")]
    NotAnObject { found: &'static str },
    #[error("it is nested more than {JSON_DEPTH_MAX} levels deep")]
    TooDeep,
}

/// Returns the fields of a struct as a canonical JSON object.
pub fn canonical<T: Serialize>(value: &T) -> Result<JsonText, CanonicalError> {
    let value = serde_json::to_value(value)?;
    if !value.is_object() {
        return Err(CanonicalError::NotAnObject { found: kind(&value) });
    }
    let text = canonical_text(&value);
    if !JsonText::depth_is_fine(&text) {
        return Err(CanonicalError::TooDeep);
    }
    Ok(JsonText::from_stored(text.into_bytes().into()))
}

/// Returns the canonical text of a value. Does not rely on how serde_json orders its maps: that changes when any other
/// crate switches on a feature.
pub fn canonical_text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (at, (name, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
