//! PUBLISH and PUBLISH_BATCH.

use millrace_model::{DeliverAt, NewEvent, TopicName};
use serde_json::value::RawValue;

use crate::error::FrameError;
use crate::event::{push_deliver_at, push_event, read_batch_event, read_deliver_at, read_event, write_event};
use crate::field::Field;
use crate::fields::{FrameFields, each_element, needed};
use crate::text::push_string_member;

#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    pub topic: TopicName,
    pub event: NewEvent,
    pub deliver_at: Option<DeliverAt>,
}

/// Events that are stored together: all of them or none.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishBatch {
    pub topic: TopicName,
    pub events: Vec<NewEvent>,
}

impl Publish {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Publish, FrameError> {
        Ok(Publish {
            topic: fields.topic()?,
            event: read_event(fields)?,
            deliver_at: read_deliver_at(fields)?,
        })
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "topic", self.topic.as_str());
        if let Some(deliver_at) = self.deliver_at {
            push_deliver_at(out, deliver_at);
        }
        push_event(&self.event, out);
    }
}

impl PublishBatch {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<PublishBatch, FrameError> {
        let topic = fields.topic()?;
        let raw = needed(Field::Events, fields.get(Field::Events))?;
        Ok(PublishBatch { topic, events: read_events(raw)? })
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "topic", self.topic.as_str());
        out.push_str(",\"events\":[");
        for (at, event) in self.events.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            write_event(out, event, None);
        }
        out.push(']');
    }
}

/// Reads an array of events; refuses it at the first event that is wrong.
pub(crate) fn read_events(raw: &RawValue) -> Result<Vec<NewEvent>, FrameError> {
    let mut events = Vec::new();
    let take = |at, raw: &RawValue| {
        let fields = FrameFields::nested(raw).ok_or_else(|| {
            FrameError::bad_frame(format!("events[{at}] is no object: it must be an object with a payload"))
        })?;
        events.push(read_batch_event(&fields).map_err(|error| error.inside(format_args!("events[{at}]")))?);
        Ok(())
    };
    match each_element(raw, take) {
        Some(read) => read.map(|()| events),
        None => Err(FrameError::wrong(Field::Events, raw)),
    }
}
