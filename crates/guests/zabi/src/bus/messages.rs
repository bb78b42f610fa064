//! The requests and events of `event/bus`.

use std::borrow::Cow;

use millrace_reactor::zcl1::{FieldError, FieldReader, FieldWriter};

use super::port::{BusError, BusEvent, SubscriptionId};

pub(super) const OP_SUBSCRIBE: u16 = 1;
pub(super) const OP_UNSUBSCRIBE: u16 = 2;
pub(super) const OP_PUBLISH: u16 = 3;
pub(super) const OP_EVENT: u16 = 100;

const TEXT_BYTES_MAX: usize = 60_000;
const EVENT_BYTES_MAX: usize = 65_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BusRequest<'a> {
    Subscribe { topic: &'a [u8] },
    Unsubscribe { id: SubscriptionId },
    Publish { topic: &'a [u8], data: &'a [u8] },
}

/// An error reply: trace and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BusRequestError(pub(super) &'static str, pub(super) Cow<'static, str>);

impl BusRequestError {
    pub(super) fn new(trace: &'static str, message: &'static str) -> BusRequestError {
        BusRequestError(trace, Cow::Borrowed(message))
    }
}

impl<'a> BusRequest<'a> {
    pub(super) fn decode(op: u16, payload: &'a [u8]) -> Result<BusRequest<'a>, BusRequestError> {
        match op {
            OP_SUBSCRIBE => {
                let bad = |message| BusRequestError::new("t_event_bus_bad_sub", message);
                let (topic, flags) = decode_subscribe(payload).map_err(|_| bad("bad SUBSCRIBE payload"))?;
                match topic.len() {
                    _ if flags != 0 => Err(BusRequestError::new("t_event_bus_flags", "flags must be 0")),
                    0 => Err(bad("empty topic")),
                    1..=TEXT_BYTES_MAX => Ok(BusRequest::Subscribe { topic }),
                    _ => Err(bad("topic too long")),
                }
            }
            OP_UNSUBSCRIBE => {
                let id = decode_id(payload)
                    .map_err(|_| BusRequestError::new("t_event_bus_bad_unsub", "bad UNSUBSCRIBE payload"))?;
                Ok(BusRequest::Unsubscribe { id: SubscriptionId(id) })
            }
            OP_PUBLISH => {
                let bad = |message| BusRequestError::new("t_event_bus_bad_pub", message);
                let (topic, data) = decode_publish(payload).map_err(|_| bad("bad PUBLISH payload"))?;
                match topic.is_empty() {
                    true => Err(bad("empty topic")),
                    false if !event_fits(topic, data) => Err(bad("event too long")),
                    false => Ok(BusRequest::Publish { topic, data }),
                }
            }
            _ => Err(BusRequestError::new("t_event_bus_unknown_op", "unknown op")),
        }
    }
}

impl From<BusError> for BusRequestError {
    fn from(error: BusError) -> BusRequestError {
        let trace = match error {
            BusError::TooManySubscriptions => "t_event_bus_oom",
            BusError::TopicDenied => "t_event_bus_denied",
            BusError::Refused(_) => "t_event_bus_refused",
            BusError::NoAnswer(_) | BusError::Unavailable(_) => "t_event_bus_internal",
        };
        BusRequestError(trace, error.to_string().into())
    }
}

pub(super) fn event_fits(topic: &[u8], data: &[u8]) -> bool {
    topic.len() <= TEXT_BYTES_MAX
        && data.len() <= TEXT_BYTES_MAX
        && 12 + topic.len() + data.len() <= EVENT_BYTES_MAX
}

/// Returns the payload of an EVENT.
pub(super) fn encode_event(id: SubscriptionId, event: &BusEvent<'_>) -> Vec<u8> {
    let mut payload = Vec::with_capacity(12 + event.topic.len() + event.data.len());
    FieldWriter::new(&mut payload).u32(id.0).prefixed(event.topic).prefixed(event.data);
    payload
}

fn decode_subscribe(payload: &[u8]) -> Result<(&[u8], u32), FieldError> {
    let mut fields = FieldReader::new(payload);
    let decoded = (fields.prefixed()?, fields.u32()?);
    fields.finish().map(|()| decoded)
}

fn decode_id(payload: &[u8]) -> Result<u32, FieldError> {
    let mut fields = FieldReader::new(payload);
    let id = fields.u32()?;
    fields.finish().map(|()| id)
}

fn decode_publish(payload: &[u8]) -> Result<(&[u8], &[u8]), FieldError> {
    let mut fields = FieldReader::new(payload);
    let decoded = (fields.prefixed()?, fields.prefixed()?);
    fields.finish().map(|()| decoded)
}
