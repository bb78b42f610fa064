//! Every event of the workload carries its own number, by which it is recognised everywhere.

use millrace_model::{EventBody, JsonText};
use serde_json::{Value, json};

pub(crate) fn payload(number: u64) -> JsonText {
    JsonText::from_stored(format!("{{\"n\":{number}}}").into())
}

/// Returns `None` for an event that the workload did not make.
pub(crate) fn number(body: &EventBody) -> Option<u64> {
    body.payload.as_str().strip_prefix("{\"n\":")?.strip_suffix('}')?.parse().ok()
}

/// A schema that forbids events whose number has this factor.
pub(crate) fn forbidding(factor: u64) -> Value {
    json!({"properties": {"n": {"not": {"multipleOf": factor}}}})
}

/// The factor of a schema made by [`forbidding`].
pub(crate) fn forbidden_factor(schema: &Value) -> Option<u64> {
    schema.pointer("/properties/n/not/multipleOf")?.as_u64()
}
