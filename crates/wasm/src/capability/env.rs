//! The capability `env`.

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError};
use super::environment::Environment;
use super::shape::{CODE_OTHER, done};
use crate::codec::Generation;
use crate::value::Value;

pub(super) const OPS: &[&str] = &["get", "set"];

pub(super) fn call(
    variables: &Environment,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    match call.op {
        "get" => {
            let found = variables.get(call.text("the name of a variable must be a string")?);
            Ok(CapabilityAnswer::Now(match call.generation {
                Generation::A => found.map_or(Value::Nil, Value::Str),
                Generation::B => {
                    let is_found = found.is_some();
                    Value::record([("found", is_found.into()), ("value", found.unwrap_or_default().into())])
                }
            }))
        }
        "set" => {
            let expected = "a variable must be a record {key, value} of strings";
            let (name, value) = (call.text_field("key", expected)?, call.text_field("value", expected)?);
            let set = variables.set(name, value).map_err(|error| (CODE_OTHER, error.to_string()));
            Ok(CapabilityAnswer::Now(done(call.generation, set)))
        }
        _ => Err(call.unknown("env", OPS)),
    }
}
