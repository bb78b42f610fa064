//! MESSAGES: several events of one partition for a member of a group that asked for such frames.

use millrace_model::{Event, Group, Partition, TopicName};
use serde_json::value::RawValue;

use crate::envelope::{Envelope, Shown, write_envelope};
use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, each_element, needed};
use crate::server_frame::Message;
use crate::text::push_display;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Messages {
    pub topic: TopicName,
    pub partition: Partition,
    pub group: Group,
    /// In the order of their delivery; their offsets need not follow each other.
    pub envelopes: Vec<Envelope>,
}

impl Messages {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Messages, FrameError> {
        let raw = needed(Field::Envelopes, fields.get(Field::Envelopes))?;
        let mut envelopes = Vec::new();
        let read = each_element(raw, |at, element: &RawValue| {
            let fields = FrameFields::nested(element).ok_or_else(|| {
                FrameError::bad_frame(format!("envelopes[{at}] is no object: it must be an event"))
            })?;
            let envelope = Envelope::read(&fields);
            envelopes.push(envelope.map_err(|error| error.inside(format_args!("envelopes[{at}]")))?);
            Ok(())
        });
        read.unwrap_or_else(|| Err(FrameError::wrong(Field::Envelopes, raw)))?;
        Ok(Messages {
            topic: fields.topic()?,
            partition: Partition(needed(Field::Partition, fields.small(Field::Partition, 0..=u32::MAX)?)?),
            group: fields.group()?,
            envelopes,
        })
    }

    pub fn write(&self, out: &mut String) {
        push_head(out, self.topic.as_str(), self.partition, self.group.as_str());
        for (at, envelope) in self.envelopes.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            envelope.write(out);
        }
        out.push_str("]}");
    }

    /// The events one by one, as MESSAGE frames would have brought them.
    pub fn into_each(self) -> impl Iterator<Item = Message> {
        let Messages { topic, partition, group, envelopes } = self;
        envelopes.into_iter().map(move |envelope| Message {
            topic: topic.clone(),
            partition,
            group: group.clone(),
            offset: envelope.offset,
            envelope,
        })
    }
}

/// Writes a MESSAGES frame event by event.
#[derive(Debug)]
pub struct MessagesWriter {
    out: String,
    events: u32,
}

impl MessagesWriter {
    /// Begins a frame with its first event.
    pub fn begin(group: &Group, event: &Event, shown: Shown) -> MessagesWriter {
        let mut out = String::with_capacity(event.body.bytes() + 320);
        push_head(&mut out, event.stream.topic.topic(), event.stream.partition, group.as_str());
        write_envelope(&mut out, event, shown);
        MessagesWriter { out, events: 1 }
    }

    /// Adds an event of the same partition.
    pub fn add(&mut self, event: &Event, shown: Shown) {
        self.out.push(',');
        write_envelope(&mut self.out, event, shown);
        self.events += 1;
    }

    pub fn events(&self) -> u32 {
        self.events
    }

    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Returns the frame.
    pub fn finish(mut self) -> String {
        self.out.push_str("]}");
        self.out
    }
}

/// By their alphabets names need no escaping.
fn push_head(out: &mut String, topic: &str, partition: Partition, group: &str) {
    out.push_str("{\"type\":\"MESSAGES\",\"topic\":\"");
    out.push_str(topic);
    push_display(out, format_args!("\",\"partition\":{partition},\"group\":\""));
    out.push_str(group);
    out.push_str("\",\"envelopes\":[");
}
