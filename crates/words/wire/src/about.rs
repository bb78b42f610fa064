//! The topic, group, partition and offset that an error is about, as far as they are known.

use millrace_model::{Offset, Partition};

use crate::field::Field;
use crate::fields::FrameFields;
use crate::text::{push_member, push_string_member};

/// Names longer than this cannot exist and are not repeated in an error.
const NAME_BYTES_MAX: usize = 255;

/// The subject of an error. Names are plain text here, because an error may be about an illegal name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub topic: Option<Box<str>>,
    pub group: Option<Box<str>>,
    pub partition: Option<Partition>,
    pub offset: Option<Offset>,
}

impl About {
    pub fn topic(topic: &str) -> About {
        About { topic: Some(topic.into()), ..About::default() }
    }

    /// Returns the subject that a document names, as far as it can be read.
    pub(crate) fn of(fields: &FrameFields<'_>) -> About {
        let name = |field| {
            let text = fields.text(field).ok().flatten()?;
            (text.len() <= NAME_BYTES_MAX).then(|| text.as_ref().into())
        };
        let number = |field, max| fields.integer(field, 0..=max).ok().flatten();
        About {
            topic: name(Field::Topic),
            group: name(Field::Group),
            partition: number(Field::Partition, u64::from(u32::MAX))
                .map(|partition| Partition(partition as u32)),
            offset: number(Field::Offset, u64::MAX).map(Offset),
        }
    }

    pub(crate) fn push(&self, out: &mut String) {
        if let Some(topic) = &self.topic {
            push_string_member(out, "topic", topic);
        }
        if let Some(group) = &self.group {
            push_string_member(out, "group", group);
        }
        if let Some(partition) = self.partition {
            push_member(out, "partition", partition);
        }
        if let Some(offset) = self.offset {
            push_member(out, "offset", offset);
        }
    }
}
