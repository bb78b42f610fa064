//! The capability `millrace.store`: JSON values by key, committed together. The shapes are the same in both
//! generations.

use super::bus::{ended, split, status};
use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError, ReplyRoom};
use super::port::{PortError, StorePort};
use crate::host::outcome::RunNumber;
use crate::value::Value;

pub(super) const OPS: &[&str] = &["get", "ensure", "commit"];

const ENSURE: &str = "a value must be a record {key, value}, its value JSON text";

pub(super) fn call(
    store: &dyn StorePort,
    run: RunNumber,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    Ok(match call.op {
        "get" => {
            let found = store.get(run, call.text("a key must be a string")?.to_owned());
            let room = call.room();
            CapabilityAnswer::Later(Box::pin(async move { Ok(found_reply(found.await, room)) }))
        }
        "ensure" => {
            let (key, value) = (call.text_field("key", ENSURE)?, call.text_field("value", ENSURE)?);
            let ensured = store.ensure(run, key.to_owned(), value.to_owned());
            CapabilityAnswer::Later(Box::pin(async move { Ok(ended(ensured.await)) }))
        }
        "commit" => {
            let committed = store.commit(run);
            CapabilityAnswer::Later(Box::pin(async move { Ok(committed_reply(committed.await)) }))
        }
        _ => return Err(call.unknown("store", OPS)),
    })
}

fn found_reply(result: Result<Option<String>, PortError>, room: ReplyRoom) -> Value {
    let is_found = matches!(result, Ok(Some(_)));
    let reply = found_record(result);
    if is_found && !room.fits(&reply) {
        let bytes = room.buffer_bytes;
        let refused = format!("the value does not fit a buffer of {bytes} bytes");
        return found_record(Err(PortError::Refused(refused)));
    }
    reply
}

fn found_record(result: Result<Option<String>, PortError>) -> Value {
    let (value, error) = split(result);
    let [code, message] = status(error.as_ref());
    let value = value.flatten();
    Value::record([
        ("ok", error.is_none().into()),
        ("found", value.is_some().into()),
        ("value", value.unwrap_or_default().into()),
        code,
        message,
    ])
}

fn committed_reply(result: Result<Option<u64>, PortError>) -> Value {
    let (commit, error) = split(result);
    let [code, message] = status(error.as_ref());
    let commit = commit.flatten();
    Value::record([
        ("ok", error.is_none().into()),
        ("changed", commit.is_some().into()),
        ("commit", commit.unwrap_or(0).into()),
        code,
        message,
    ])
}
