//! The part of an event that its author writes: payload, key, headers, id, priority, and when it is due.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    DeliverAt, EventBody, EventId, Headers, JsonText, Lineage, NewEvent, PRIORITY_DEFAULT, Priority,
    Timestamp,
};
use serde_json::value::RawValue;

use crate::error::{FrameError, shown};
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed, text_of};
use crate::text::{push_json_member, push_member, push_string_member};

pub(crate) fn read_deliver_at(fields: &FrameFields<'_>) -> Result<Option<DeliverAt>, FrameError> {
    let delay = fields.integer(Field::DelayMs, 0..=INTEGER_MAX)?.map(DeliverAt::AfterMs);
    let at = fields.integer(Field::DeliverAt, 0..=INTEGER_MAX)?.map(|ms| DeliverAt::At(Timestamp(ms)));
    if delay.is_some() && at.is_some() {
        return Err(FrameError::bad_frame("delay_ms and deliver_at are both given: give one of them"));
    }
    Ok(delay.or(at))
}

pub(crate) fn push_deliver_at(out: &mut String, at: DeliverAt) {
    match at {
        DeliverAt::AfterMs(ms) => push_member(out, "delay_ms", ms),
        DeliverAt::At(ts) => push_member(out, "deliver_at", ts.0),
    }
}

/// Returns the default where the field is absent or null.
pub(crate) fn read_priority(fields: &FrameFields<'_>) -> Result<Priority, FrameError> {
    match fields.get(Field::Priority) {
        None => Ok(PRIORITY_DEFAULT),
        Some(raw) => raw.get().parse().map(Priority).map_err(|_| FrameError::wrong(Field::Priority, raw)),
    }
}

pub(crate) fn read_event(fields: &FrameFields<'_>) -> Result<NewEvent, FrameError> {
    let payload = needed(Field::Payload, fields.given(Field::Payload))?;
    let priority = read_priority(fields)?;
    Ok(NewEvent {
        id: read_id(fields)?,
        body: Arc::new(EventBody {
            key: fields.text(Field::Key)?.map(Into::into),
            headers: read_headers(fields)?,
            priority,
            lineage: Lineage::default(),
            payload: JsonText::from_checked(payload),
        }),
    })
}

/// Reads an event of a batch. A batch is stored at once and as a whole, so its events cannot be delayed.
pub(crate) fn read_batch_event(fields: &FrameFields<'_>) -> Result<NewEvent, FrameError> {
    let delayed = [Field::DelayMs, Field::DeliverAt].into_iter().find(|field| fields.get(*field).is_some());
    match delayed {
        None => read_event(fields),
        Some(field) => Err(FrameError::bad_frame(format!(
            "{} is given: events of a batch cannot be delayed, publish them one by one",
            field.name()
        ))),
    }
}

pub(crate) fn read_id(fields: &FrameFields<'_>) -> Result<Option<EventId>, FrameError> {
    let Some(text) = fields.text(Field::Id)? else {
        return Ok(None);
    };
    EventId::parse(&text).map(Some).map_err(|error| FrameError::bad_frame(error.to_string()))
}

pub(crate) fn read_headers(fields: &FrameFields<'_>) -> Result<Option<Headers>, FrameError> {
    let Some(raw) = fields.get(Field::Headers) else {
        return Ok(None);
    };
    Headers::from_raw(raw).map(Some).ok_or_else(|| wrong_headers(raw))
}

/// Returns an error that names the header that is not a string, if the headers are an object at all.
fn wrong_headers(raw: &RawValue) -> FrameError {
    let map: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let wrong = map.into_iter().find(|(_, value)| text_of(value).is_none());
    wrong.map_or_else(
        || FrameError::wrong(Field::Headers, raw),
        |(name, value)| {
            FrameError::bad_frame(format!(
                "headers.{} is {}: it must be a string without lone surrogates",
                shown(&name),
                shown(value.get())
            ))
        },
    )
}

/// Appends the members of an event that its author writes, each with a comma before it.
pub(crate) fn push_event(event: &NewEvent, out: &mut String) {
    if let Some(key) = &event.body.key {
        push_string_member(out, "key", key);
    }
    if let Some(headers) = &event.body.headers {
        push_json_member(out, "headers", headers.json().as_str());
    }
    if let Some(id) = &event.id {
        push_string_member(out, "id", &id.to_string());
    }
    if event.body.priority != PRIORITY_DEFAULT {
        push_member(out, "priority", event.body.priority.0);
    }
    push_json_member(out, "payload", event.body.payload.as_str());
}

/// Appends an event as an object of its own: an element of a batch, or an HTTP body.
pub fn write_event(out: &mut String, event: &NewEvent, deliver_at: Option<DeliverAt>) {
    let start = out.len();
    push_event(event, out);
    if let Some(deliver_at) = deliver_at {
        push_deliver_at(out, deliver_at);
    }
    out.push('}');
    out.replace_range(start..=start, "{");
}
