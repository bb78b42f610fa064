//! The capability `millrace.bus`: publishing and receiving events. The shapes are the same in both generations.

use super::call::{CapabilityAnswer, CapabilityCall, CapabilityError, ReplyRoom};
use super::port::{BusPort, GuestAck, GuestEvent, GuestPublished, GuestReceive, GuestReceived, PortError};
use crate::host::outcome::RunNumber;
use crate::value::Value;

pub(super) const OPS: &[&str] = &["publish", "emit", "receive", "ack"];

const EVENT: &str =
    "an event must be a record {topic, payload, key?, headers?, id?, delay_ms?}, its payload JSON text";
const RECEIVE: &str = "a receive must be a record {topic, group, wait_ms?}";
const ACK: &str = "an ack must be a record {topic, group, partition, offset}";

pub(super) fn call(
    bus: &dyn BusPort,
    run: RunNumber,
    call: &CapabilityCall<'_>,
) -> Result<CapabilityAnswer, CapabilityError> {
    Ok(match call.op {
        "publish" => {
            let published = bus.publish(run, event(call)?);
            CapabilityAnswer::Later(Box::pin(async move { Ok(published_reply(published.await)) }))
        }
        "emit" => {
            let emitted = bus.emit(run, event(call)?);
            CapabilityAnswer::Later(Box::pin(async move { Ok(ended(emitted.await)) }))
        }
        "receive" => {
            let request = GuestReceive {
                topic: call.text_field("topic", RECEIVE)?.to_owned(),
                group: call.text_field("group", RECEIVE)?.to_owned(),
                wait_ms: number(call, "wait_ms", RECEIVE)?.unwrap_or(0),
            };
            let received = bus.receive(run, request);
            let room = call.room();
            CapabilityAnswer::Later(Box::pin(async move { Ok(received_reply(received.await, room)) }))
        }
        "ack" => {
            let required = |name| number(call, name, ACK)?.ok_or_else(|| call.bad(ACK));
            let ack = GuestAck {
                topic: call.text_field("topic", ACK)?.to_owned(),
                group: call.text_field("group", ACK)?.to_owned(),
                partition: u32::try_from(required("partition")?).map_err(|_| call.bad(ACK))?,
                offset: required("offset")?,
            };
            let acked = bus.ack(run, ack);
            CapabilityAnswer::Later(Box::pin(async move { Ok(ended(acked.await)) }))
        }
        _ => return Err(call.unknown("bus", OPS)),
    })
}

fn event(call: &CapabilityCall<'_>) -> Result<GuestEvent, CapabilityError> {
    let text = |name| match call.optional(name) {
        None => Ok(None),
        // A record of generation B has every field: an empty text means that there is none.
        Some(value) => match value.as_str() {
            Some(text) => Ok((!text.is_empty()).then(|| text.to_owned())),
            None => Err(call.bad(EVENT)),
        },
    };
    Ok(GuestEvent {
        topic: call.text_field("topic", EVENT)?.to_owned(),
        payload: call.text_field("payload", EVENT)?.to_owned(),
        key: text("key")?,
        headers: headers(call)?,
        id: text("id")?,
        delay_ms: number(call, "delay_ms", EVENT)?.filter(|ms| *ms > 0),
    })
}

/// Reads the headers from a list of records `{name, value}`.
fn headers(call: &CapabilityCall<'_>) -> Result<Vec<(String, String)>, CapabilityError> {
    let Some(list) = call.optional("headers") else { return Ok(Vec::new()) };
    let pair = |header: &Value| {
        let text = |name| header.get(name).and_then(Value::as_str).map(str::to_owned);
        Some((text("name")?, text("value")?))
    };
    let headers = list.as_array().and_then(|list| list.iter().map(pair).collect());
    headers.ok_or_else(|| call.bad(EVENT))
}

fn number(
    call: &CapabilityCall<'_>,
    name: &str,
    expected: &'static str,
) -> Result<Option<u64>, CapabilityError> {
    let Some(value) = call.optional(name) else { return Ok(None) };
    let number = value.as_i64().and_then(|number| u64::try_from(number).ok());
    number.map(Some).ok_or_else(|| call.bad(expected))
}

/// The fields at the end of every reply of our own capabilities (`millrace.bus` and `millrace.store`).
pub(super) fn status(error: Option<&PortError>) -> [(&'static str, Value); 2] {
    let code = error.map_or(0, PortError::code);
    [("code", code.into()), ("message", error.map(ToString::to_string).unwrap_or_default().into())]
}

/// The reply to an operation without a result: `{ok, code, message}`.
pub(super) fn ended(result: Result<(), PortError>) -> Value {
    let error = result.err();
    let [code, message] = status(error.as_ref());
    Value::record([("ok", error.is_none().into()), code, message])
}

fn published_reply(result: Result<GuestPublished, PortError>) -> Value {
    let (published, error) = split(result);
    let [code, message] = status(error.as_ref());
    let GuestPublished { partition, offset, id } = published.unwrap_or_default();
    Value::record([
        ("ok", error.is_none().into()),
        ("partition", partition.into()),
        ("offset", offset.into()),
        ("id", id.into()),
        code,
        message,
    ])
}

fn received_reply(result: Result<Option<GuestReceived>, PortError>, room: ReplyRoom) -> Value {
    let offset = result.as_ref().ok().and_then(Option::as_ref).map(|received| received.offset);
    let reply = received_record(result);
    match offset {
        Some(offset) if !room.fits(&reply) => {
            let bytes = room.buffer_bytes;
            let refused = format!("the event at offset {offset} does not fit a buffer of {bytes} bytes");
            received_record(Err(PortError::Refused(refused)))
        }
        _ => reply,
    }
}

fn received_record(result: Result<Option<GuestReceived>, PortError>) -> Value {
    let (received, error) = split(result);
    let [code, message] = status(error.as_ref());
    let received = received.flatten();
    let found = received.is_some();
    let event = received.unwrap_or_default();
    Value::record([
        ("ok", error.is_none().into()),
        ("found", found.into()),
        ("partition", event.partition.into()),
        ("offset", event.offset.into()),
        ("id", event.id.into()),
        ("key", event.key.unwrap_or_default().into()),
        ("payload", event.payload.into()),
        code,
        message,
    ])
}

pub(super) fn split<T>(result: Result<T, PortError>) -> (Option<T>, Option<PortError>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    }
}
