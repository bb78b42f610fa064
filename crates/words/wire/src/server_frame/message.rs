//! MESSAGE: an event for a member of a group.

use millrace_model::{Event, Group, Offset, Partition, TopicName};

use crate::envelope::{Envelope, Shown, write_envelope};
use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed};
use crate::text::push_display;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub topic: TopicName,
    pub partition: Partition,
    pub group: Group,
    pub offset: Offset,
    pub envelope: Envelope,
}

impl Message {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Message, FrameError> {
        let raw = needed(Field::Envelope, fields.get(Field::Envelope))?;
        let envelope = FrameFields::of_field(Field::Envelope, raw)?;
        Ok(Message {
            topic: fields.topic()?,
            partition: Partition(needed(Field::Partition, fields.small(Field::Partition, 0..=u32::MAX)?)?),
            group: fields.group()?,
            offset: Offset(needed(Field::Offset, fields.integer(Field::Offset, 0..=INTEGER_MAX)?)?),
            envelope: Envelope::read(&envelope).map_err(|error| error.inside("envelope"))?,
        })
    }

    pub fn write(&self, out: &mut String) {
        push_head(out, self.topic.as_str(), self.partition, self.group.as_str(), self.offset);
        self.envelope.write(out);
        out.push('}');
    }
}

pub fn write_message(out: &mut String, group: &Group, event: &Event, shown: Shown) {
    push_head(out, event.stream.topic.topic(), event.stream.partition, group.as_str(), event.offset);
    write_envelope(out, event, shown);
    out.push('}');
}

/// By their alphabet names need no escaping.
fn push_head(out: &mut String, topic: &str, partition: Partition, group: &str, offset: Offset) {
    out.push_str("{\"type\":\"MESSAGE\",\"topic\":\"");
    out.push_str(topic);
    push_display(out, format_args!("\",\"partition\":{partition},\"group\":\""));
    out.push_str(group);
    push_display(out, format_args!("\",\"offset\":{offset},\"envelope\":"));
}
