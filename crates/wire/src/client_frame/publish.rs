//! PUBLISH and PUBLISH_BATCH.

use std::fmt;

use millrace_model::{NewEvent, TopicName};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::FrameError;
use crate::event::{DeliverAt, push_event, read_batch_event, read_event, write_event};
use crate::field::Field;
use crate::fields::{Fields, needed};
use crate::text::push_string_member;

#[derive(Clone, Debug, PartialEq)]
pub struct Publish {
    pub topic: TopicName,
    pub event: NewEvent,
    pub deliver_at: Option<DeliverAt>,
}

/// All of them or none.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishBatch {
    pub topic: TopicName,
    pub events: Vec<NewEvent>,
}

impl Publish {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Publish, FrameError> {
        Ok(Publish {
            topic: fields.topic()?,
            event: read_event(fields)?,
            deliver_at: DeliverAt::read(fields)?,
        })
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "topic", self.topic.as_str());
        if let Some(deliver_at) = self.deliver_at {
            deliver_at.push(out);
        }
        push_event(&self.event, out);
    }
}

impl PublishBatch {
    pub(super) fn read(fields: &Fields<'_>) -> Result<PublishBatch, FrameError> {
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

/// An array of events, refused at the first one that is wrong.
pub(crate) fn read_events(raw: &RawValue) -> Result<Vec<NewEvent>, FrameError> {
    let mut reader = EventsReader { events: Vec::new(), error: None };
    match reader.deserialize(&mut serde_json::Deserializer::from_str(raw.get())) {
        Ok(()) => Ok(reader.events),
        Err(_) => Err(reader.error.unwrap_or_else(|| FrameError::wrong(Field::Events, raw))),
    }
}

/// Takes one element at a time, so that a long array of rubbish costs no memory.
struct EventsReader {
    events: Vec<NewEvent>,
    error: Option<FrameError>,
}

impl EventsReader {
    fn take(&mut self, raw: &RawValue) -> Result<(), FrameError> {
        let at = self.events.len();
        let fields = Fields::nested(raw).ok_or_else(|| {
            FrameError::bad_frame(format!("events[{at}] is no object: it must be an object with a payload"))
        })?;
        self.events
            .push(read_batch_event(&fields).map_err(|error| error.inside(format_args!("events[{at}]")))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut EventsReader {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut EventsReader {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(raw) = seq.next_element::<&RawValue>()? {
            if let Err(error) = self.take(raw) {
                self.error = Some(error);
                return Err(serde::de::Error::custom("an event is wrong"));
            }
        }
        Ok(())
    }
}
