//! The capability `env`: environment variables.

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
            let name = call.text("the name of a variable must be a string")?;
            let reply = got(call.generation, variables.get(name));
            if call.room().fits(&reply) {
                return Ok(CapabilityAnswer::Now(reply));
            }
            // The reply of neither generation has a field for an error.
            let reply = got(call.generation, None);
            if !variables.is_news(name) {
                return Ok(CapabilityAnswer::Now(reply));
            }
            let (bytes, name) = (call.buffer_bytes, name.escape_debug().to_string());
            // The log may go to a pipe that nobody reads, so the warning is not written on the scheduler's thread.
            Ok(CapabilityAnswer::Stream(Box::new(move || {
                tracing::warn!(
                    "the variable {name} does not fit a buffer of {bytes} bytes: answered as not set"
                );
                reply
            })))
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

fn got(generation: Generation, found: Option<String>) -> Value {
    match generation {
        Generation::A => found.map_or(Value::Nil, Value::Str),
        Generation::B => {
            let is_found = found.is_some();
            Value::record([("found", is_found.into()), ("value", found.unwrap_or_default().into())])
        }
    }
}
