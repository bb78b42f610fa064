//! The envelope: a committed event as subscribers and readers see it.

use millrace_model::{
    Event, EventId, Headers, JsonText, Offset, PRIORITY_DEFAULT, Partition, Priority, Timestamp, TopicName,
};
use sha2::{Digest, Sha256};

use crate::error::FrameError;
use crate::event::{read_headers, read_id, read_priority};
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed};
use crate::text::{push_display, push_json_member, push_member, push_string, push_string_member};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub id: EventId,
    pub ts: Timestamp,
    pub topic: TopicName,
    pub key: Option<Box<str>>,
    pub partition: Partition,
    pub offset: Offset,
    pub headers: Option<Headers>,
    /// 100 if the text does not name it.
    pub priority: Priority,
    pub payload: JsonText,
    /// SHA-256 of the payload's bytes as they are written here, in hexadecimal digits, if it was asked for.
    pub payload_sha256: Option<Box<str>>,
    /// The number of this delivery; 1 if the text does not name it.
    pub attempts: u32,
}

/// Members that an envelope shows beside the event itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The number of this delivery, written from the second on.
    pub attempts: u32,
    pub payload_sha256: bool,
}

impl Envelope {
    pub fn parse(text: &str) -> Result<Envelope, FrameError> {
        Envelope::read(&FrameFields::of_document(text)?)
    }

    pub(crate) fn read(fields: &FrameFields<'_>) -> Result<Envelope, FrameError> {
        let payload = needed(Field::Payload, fields.given(Field::Payload))?;
        Ok(Envelope {
            id: needed(Field::Id, read_id(fields)?)?,
            ts: Timestamp(needed(Field::Ts, fields.integer(Field::Ts, 0..=INTEGER_MAX)?)?),
            topic: fields.topic()?,
            key: fields.text(Field::Key)?.map(Into::into),
            partition: Partition(needed(Field::Partition, fields.small(Field::Partition, 0..=u32::MAX)?)?),
            offset: Offset(needed(Field::Offset, fields.integer(Field::Offset, 0..=INTEGER_MAX)?)?),
            headers: read_headers(fields)?,
            priority: read_priority(fields)?,
            payload_sha256: fields.text(Field::PayloadSha256)?.map(Into::into),
            payload: JsonText::from_checked(payload),
            attempts: fields.small(Field::Attempts, 1..=u32::MAX)?.unwrap_or(1),
        })
    }

    pub fn write(&self, out: &mut String) {
        push_parts(
            out,
            &EnvelopeParts {
                id: &self.id,
                ts: self.ts,
                topic: self.topic.as_str(),
                key: self.key.as_deref(),
                partition: self.partition,
                offset: self.offset,
                headers: self.headers.as_ref(),
                priority: self.priority,
                payload: &self.payload,
                payload_sha256: self.payload_sha256.as_deref(),
                attempts: self.attempts,
            },
        );
    }
}

/// Appends the envelope of a stored event.
pub fn write_envelope(out: &mut String, event: &Event, shown: Shown) {
    let digest = shown.payload_sha256.then(|| format!("{:x}", Sha256::digest(event.body.payload.bytes())));
    push_parts(
        out,
        &EnvelopeParts {
            id: &event.id,
            ts: event.ts,
            topic: event.stream.topic.topic(),
            key: event.body.key.as_deref(),
            partition: event.stream.partition,
            offset: event.offset,
            headers: event.body.headers.as_ref(),
            priority: event.body.priority,
            payload: &event.body.payload,
            payload_sha256: digest.as_deref(),
            attempts: shown.attempts,
        },
    );
}

struct EnvelopeParts<'a> {
    id: &'a EventId,
    ts: Timestamp,
    topic: &'a str,
    key: Option<&'a str>,
    partition: Partition,
    offset: Offset,
    headers: Option<&'a Headers>,
    priority: Priority,
    payload: &'a JsonText,
    payload_sha256: Option<&'a str>,
    attempts: u32,
}

/// Writes JSON by hand, for speed, because every delivery passes here. By their alphabets a UUID and a topic need no
/// escaping.
fn push_parts(out: &mut String, parts: &EnvelopeParts<'_>) {
    out.push_str("{\"id\":");
    match parts.id {
        EventId::Uuid(_) => push_display(out, format_args!("\"{}\"", parts.id)),
        EventId::Text(text) => push_string(out, text),
    }
    push_display(out, format_args!(",\"ts\":{},\"topic\":\"{}\"", parts.ts.0, parts.topic));
    if let Some(key) = parts.key {
        push_string_member(out, "key", key);
    }
    push_display(out, format_args!(",\"partition\":{},\"offset\":{}", parts.partition, parts.offset));
    if let Some(headers) = parts.headers {
        push_json_member(out, "headers", headers.json().as_str());
    }
    if parts.priority != PRIORITY_DEFAULT {
        push_member(out, "priority", parts.priority.0);
    }
    if let Some(digest) = parts.payload_sha256 {
        push_string_member(out, "payload_sha256", digest);
    }
    push_json_member(out, "payload", parts.payload.as_str());
    if parts.attempts > 1 {
        push_member(out, "attempts", parts.attempts);
    }
    out.push('}');
}
