//! PUBLISHED: the event, or the batch, is as durable as the frame says.

use millrace_model::{Durability, EventId, Offset, Partition, Timestamp, TopicName};

use crate::error::FrameError;
use crate::event::read_id;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX, needed, text_of};
use crate::rid::Rid;
use crate::server_frame::read_rid;
use crate::text::{push_display, push_json_member, push_member, push_rid, push_string};

/// The place of a stored event, or when a delayed event will be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedPlace {
    At { partition: Partition, offset: Offset },
    Due(Timestamp),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub topic: TopicName,
    pub place: PublishedPlace,
    pub id: EventId,
    pub durability: Durability,
    pub rid: Option<Rid>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedBatch {
    pub topic: TopicName,
    pub offsets: Vec<(Partition, Offset)>,
    pub durability: Durability,
    pub rid: Option<Rid>,
}

impl Published {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Published, FrameError> {
        let place = match fields.integer(Field::Due, 0..=INTEGER_MAX)? {
            Some(due) => PublishedPlace::Due(Timestamp(due)),
            None => PublishedPlace::At {
                partition: Partition(needed(
                    Field::Partition,
                    fields.small(Field::Partition, 0..=u32::MAX)?,
                )?),
                offset: Offset(needed(Field::Offset, fields.integer(Field::Offset, 0..=INTEGER_MAX)?)?),
            },
        };
        Ok(Published {
            topic: fields.topic()?,
            place,
            id: needed(Field::Id, read_id(fields)?)?,
            durability: read_durability(fields)?,
            rid: read_rid(fields),
        })
    }

    pub fn parse(text: &str) -> Result<Published, FrameError> {
        Published::read(&FrameFields::of_document(text)?)
    }

    pub fn write(&self, out: &mut String) {
        write_published(out, self.topic.as_str(), self.place, &self.id, self.durability, self.rid.as_ref());
    }
}

pub fn write_published(
    out: &mut String,
    topic: &str,
    place: PublishedPlace,
    id: &EventId,
    durability: Durability,
    rid: Option<&Rid>,
) {
    out.push_str("{\"type\":\"PUBLISHED\",\"topic\":\"");
    out.push_str(topic);
    out.push('"');
    match place {
        PublishedPlace::At { partition, offset } => {
            push_display(out, format_args!(",\"partition\":{partition},\"offset\":{offset}"));
        }
        PublishedPlace::Due(due) => push_member(out, "due", due.0),
    }
    match id {
        EventId::Uuid(_) => push_display(out, format_args!(",\"id\":\"{id}\"")),
        EventId::Text(text) => {
            out.push_str(",\"id\":");
            push_string(out, text);
        }
    }
    push_end(out, durability, rid);
}

impl PublishedBatch {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<PublishedBatch, FrameError> {
        let raw = needed(Field::Offsets, fields.get(Field::Offsets))?;
        Ok(PublishedBatch {
            topic: fields.topic()?,
            offsets: serde_json::from_str(raw.get()).map_err(|_| FrameError::wrong(Field::Offsets, raw))?,
            durability: read_durability(fields)?,
            rid: read_rid(fields),
        })
    }

    pub fn parse(text: &str) -> Result<PublishedBatch, FrameError> {
        PublishedBatch::read(&FrameFields::of_document(text)?)
    }

    pub fn write(&self, out: &mut String) {
        write_published_batch(out, self.topic.as_str(), &self.offsets, self.durability, self.rid.as_ref());
    }
}

pub fn write_published_batch(
    out: &mut String,
    topic: &str,
    offsets: &[(Partition, Offset)],
    durability: Durability,
    rid: Option<&Rid>,
) {
    out.push_str("{\"type\":\"PUBLISHED\",\"topic\":\"");
    out.push_str(topic);
    out.push_str("\",\"offsets\":[");
    for (at, (partition, offset)) in offsets.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        push_display(out, format_args!("{comma}[{partition},{offset}]"));
    }
    out.push(']');
    push_end(out, durability, rid);
}

fn push_end(out: &mut String, durability: Durability, rid: Option<&Rid>) {
    push_json_member(out, "durability", "\"");
    out.push_str(durability.as_str());
    out.push('"');
    push_rid(out, rid);
    out.push('}');
}

pub(crate) fn read_durability(fields: &FrameFields<'_>) -> Result<Durability, FrameError> {
    let raw = needed(Field::Durability, fields.get(Field::Durability))?;
    text_of(raw)
        .and_then(|text| Durability::parse(&text))
        .ok_or_else(|| FrameError::wrong(Field::Durability, raw))
}
