//! SUBSCRIBE and UNSUBSCRIBE.

use millrace_model::{AckMode, Filter, Group, TopicName};
use serde_json::value::RawValue;

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, text_of};
use crate::start::StartFrom;
use crate::text::{push_member, push_string, push_string_member};

#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    pub topic: TopicName,
    pub group: Group,
    /// Where a group without a commit begins; `None` = at the tail.
    pub from: Option<StartFrom>,
    /// Seek to `from` although the group has a commit.
    pub reset: bool,
    /// `None` = the server's default.
    pub max_inflight: Option<u32>,
    /// `None` = the topic's or the server's setting.
    pub ack_mode: Option<AckMode>,
    /// Events of one key go to one member of the group, one at a time.
    pub sticky: bool,
    pub filter: Filter,
    /// Most events in one MESSAGES frame; `None` or 1 = one MESSAGE for each event.
    pub batch_max: Option<u32>,
}

/// Most events that a client may want in one MESSAGES frame.
pub const BATCH_MAX: u32 = 1_000;

/// Returns `None` when the field is absent or null.
pub(crate) fn read_ack_mode(fields: &FrameFields<'_>, field: Field) -> Result<Option<AckMode>, FrameError> {
    let read = |raw| {
        let mode = text_of(raw).and_then(|text| AckMode::parse(&text));
        mode.ok_or_else(|| FrameError::wrong(field, raw))
    };
    fields.get(field).map(read).transpose()
}

impl Subscribe {
    pub fn to(topic: TopicName, group: Group) -> Subscribe {
        Subscribe {
            topic,
            group,
            from: None,
            reset: false,
            max_inflight: None,
            ack_mode: None,
            sticky: false,
            filter: Filter::default(),
            batch_max: None,
        }
    }

    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Subscribe, FrameError> {
        let (topic, group) = (fields.topic()?, fields.group()?);
        let from = StartFrom::read(fields)?;
        Ok(Subscribe {
            topic,
            group,
            from: from.map(|(from, _)| from),
            reset: from.is_some_and(|(_, reset)| reset),
            max_inflight: fields.small(Field::MaxInflight, 1..=u32::MAX)?,
            ack_mode: read_ack_mode(fields, Field::AckMode)?,
            sticky: fields.flag(Field::Sticky)?,
            filter: read_filter(fields)?,
            batch_max: fields.small(Field::BatchMax, 1..=BATCH_MAX)?,
        })
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "topic", self.topic.as_str());
        push_string_member(out, "group", self.group.as_str());
        if let Some(from) = self.from {
            out.push_str(",\"from\":");
            from.push(self.reset, out);
        }
        if let Some(max_inflight) = self.max_inflight {
            push_member(out, "max_inflight", max_inflight);
        }
        if let Some(mode) = self.ack_mode {
            push_string_member(out, "ack_mode", mode.as_str());
        }
        if self.sticky {
            push_member(out, "sticky", true);
        }
        if !self.filter.is_empty() {
            push_filter(&self.filter, out);
        }
        if let Some(batch_max) = self.batch_max {
            push_member(out, "batch_max", batch_max);
        }
    }
}

fn read_filter(fields: &FrameFields<'_>) -> Result<Filter, FrameError> {
    let Some(raw) = fields.get(Field::Filter) else {
        return Ok(Filter::default());
    };
    let inside = FrameFields::of_field(Field::Filter, raw)?;
    let read = || {
        Ok(Filter {
            key: inside.text(Field::Key)?.map(Into::into),
            header: inside
                .get(Field::Header)
                .map(|raw| header_pair(raw).ok_or_else(|| FrameError::wrong(Field::Header, raw)))
                .transpose()?,
        })
    };
    read().map_err(|error: FrameError| error.inside("filter"))
}

fn header_pair(raw: &RawValue) -> Option<(String, String)> {
    serde_json::from_str(raw.get()).ok()
}

fn push_filter(filter: &Filter, out: &mut String) {
    out.push_str(",\"filter\":{");
    if let Some(key) = &filter.key {
        out.push_str("\"key\":");
        push_string(out, key);
    }
    if let Some((name, value)) = &filter.header {
        out.push_str(if filter.key.is_some() { ",\"header\":[" } else { "\"header\":[" });
        push_string(out, name);
        out.push(',');
        push_string(out, value);
        out.push(']');
    }
    out.push('}');
}

#[derive(Clone, Debug, PartialEq)]
pub struct Unsubscribe {
    pub topic: TopicName,
    pub group: Group,
}

impl Unsubscribe {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<Unsubscribe, FrameError> {
        Ok(Unsubscribe { topic: fields.topic()?, group: fields.group()? })
    }

    pub(super) fn push(&self, out: &mut String) {
        push_string_member(out, "topic", self.topic.as_str());
        push_string_member(out, "group", self.group.as_str());
    }
}
