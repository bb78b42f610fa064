//! `GET /topics/{topic}/events`: a page of envelopes and the offset at which to continue.

use std::sync::Arc;

use millrace_model::{Event, Offset, Partition, TopicName};
use serde_json::value::RawValue;

use crate::envelope::{Envelope, Shown, write_envelope};
use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed};
use crate::text::push_display;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsPage {
    pub topic: TopicName,
    pub partition: Partition,
    pub events: Vec<Envelope>,
    pub next: Offset,
}

pub fn write_events_page(
    out: &mut String,
    topic: &str,
    partition: Partition,
    events: &[Arc<Event>],
    next: Offset,
    payload_sha256: bool,
) {
    push_display(out, format_args!("{{\"topic\":\"{topic}\",\"partition\":{partition},\"events\":["));
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_envelope(out, event, Shown { attempts: 1, payload_sha256 });
    }
    push_display(out, format_args!("],\"next\":{next}}}"));
}

impl EventsPage {
    pub fn parse(text: &str) -> Result<EventsPage, FrameError> {
        let fields = FrameFields::of_document(text)?;
        let raw = needed(Field::Events, fields.get(Field::Events))?;
        let elements: Vec<&RawValue> =
            serde_json::from_str(raw.get()).map_err(|_| FrameError::wrong(Field::Events, raw))?;
        let envelope = |raw: &&RawValue| {
            let fields = FrameFields::nested(raw).ok_or_else(|| FrameError::wrong(Field::Events, raw))?;
            Envelope::read(&fields)
        };
        Ok(EventsPage {
            topic: fields.topic()?,
            partition: Partition(needed(Field::Partition, fields.small(Field::Partition, 0..=u32::MAX)?)?),
            events: elements.iter().map(envelope).collect::<Result<_, _>>()?,
            next: Offset(needed(Field::Next, fields.integer(Field::Next, 0..=INTEGER_MAX)?)?),
        })
    }
}
