//! OK: the request is done. For SUBSCRIBE it has the positions of the group.

use millrace_model::{Group, TopicName};

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, needed};
use crate::position::Position;
use crate::rid::Rid;
use crate::server_frame::read_rid;
use crate::text::{push_rid, push_string_member};

/// The `op` of the only answer that tells more than that it is one.
const SUBSCRIBE: &str = "SUBSCRIBE";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OkFrame {
    /// The type of frame that is answered.
    pub op: String,
    pub rid: Option<Rid>,
    /// Present in the answer to SUBSCRIBE.
    pub subscribed: Option<Subscribed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribed {
    pub topic: TopicName,
    pub group: Group,
    pub partitions: Vec<Position>,
}

impl OkFrame {
    pub(super) fn read(fields: &FrameFields<'_>) -> Result<OkFrame, FrameError> {
        let op = needed(Field::Op, fields.text(Field::Op)?)?.into_owned();
        // Answers to other frames may have a member of this name one day; members that a frame does not have are
        // ignored.
        let subscribed = match fields.get(Field::Partitions).filter(|_| op == SUBSCRIBE) {
            None => None,
            Some(raw) => Some(Subscribed {
                topic: fields.topic()?,
                group: fields.group()?,
                partitions: serde_json::from_str(raw.get())
                    .map_err(|_| FrameError::wrong(Field::Partitions, raw))?,
            }),
        };
        Ok(OkFrame { op, rid: read_rid(fields), subscribed })
    }

    pub fn write(&self, out: &mut String) {
        match &self.subscribed {
            None => write_ok(out, &self.op, self.rid.as_ref()),
            Some(Subscribed { topic, group, partitions }) => {
                let partitions = partitions.iter().copied();
                write_subscribed(out, topic.as_str(), group.as_str(), partitions, self.rid.as_ref());
            }
        }
    }
}

pub fn write_ok(out: &mut String, op: &str, rid: Option<&Rid>) {
    out.push_str("{\"type\":\"OK\"");
    push_string_member(out, "op", op);
    push_rid(out, rid);
    out.push('}');
}

pub fn write_subscribed(
    out: &mut String,
    topic: &str,
    group: &str,
    partitions: impl IntoIterator<Item = Position>,
    rid: Option<&Rid>,
) {
    out.push_str("{\"type\":\"OK\"");
    push_string_member(out, "op", SUBSCRIBE);
    push_rid(out, rid);
    push_string_member(out, "topic", topic);
    push_string_member(out, "group", group);
    out.push_str(",\"partitions\":");
    Position::push_all(partitions, out);
    out.push('}');
}
