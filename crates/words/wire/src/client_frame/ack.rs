//! ACK and NACK.

use millrace_model::{Group, Offset, Partition, TopicName};

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed};
use crate::text::{push_member, push_string_member};

#[derive(Clone, Debug, PartialEq)]
pub struct Ack {
    pub topic: TopicName,
    pub partition: Partition,
    pub group: Group,
    pub offset: Offset,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Nack {
    pub delivery: Ack,
    pub reason: Option<String>,
    pub delay_ms: Option<u64>,
}

impl Ack {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Ack, FrameError> {
        Ok(Ack {
            topic: fields.topic()?,
            partition: Partition(needed(Field::Partition, fields.small(Field::Partition, 0..=u32::MAX)?)?),
            group: fields.group()?,
            offset: Offset(needed(Field::Offset, fields.integer(Field::Offset, 0..=INTEGER_MAX)?)?),
        })
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "topic", self.topic.as_str());
        push_member(out, "partition", self.partition);
        push_string_member(out, "group", self.group.as_str());
        push_member(out, "offset", self.offset);
    }
}

impl Nack {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Nack, FrameError> {
        Ok(Nack {
            delivery: Ack::read(fields)?,
            reason: fields.text(Field::Reason)?.map(Into::into),
            delay_ms: fields.integer(Field::DelayMs, 0..=INTEGER_MAX)?,
        })
    }

    pub(super) fn push(&self, out: &mut String) {
        self.delivery.push(out);
        if let Some(reason) = &self.reason {
            push_string_member(out, "reason", reason);
        }
        if let Some(delay_ms) = self.delay_ms {
            push_member(out, "delay_ms", delay_ms);
        }
    }
}
