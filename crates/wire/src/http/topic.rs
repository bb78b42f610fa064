//! Topics and their settings.

use millrace_model::{
    AccessList, Durability, Group, Offset, PARTITIONS_MAX, Partition, TopicConfig, TopicName, TopicPatch,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{Fields, INTEGER_MAX};
use crate::schema;
use crate::schema::TopicSettings;
use crate::server_frame::read_durability;

/// `POST /topics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicBody {
    pub topic: TopicName,
    pub config: TopicConfig,
}

impl TopicBody {
    pub fn parse(text: &str) -> Result<TopicBody, FrameError> {
        let fields = Fields::of_document(text)?;
        let topic = fields.topic()?;
        let patch = read_patch(&fields)?;
        let config = TopicConfig {
            partitions: patch.partitions.unwrap_or(0),
            retention_ms: patch.retention_ms.flatten(),
            retention_bytes: patch.retention_bytes.flatten(),
            max_attempts: patch.max_attempts.flatten(),
            ack_timeout_ms: patch.ack_timeout_ms.flatten(),
            dedupe_window_ms: patch.dedupe_window_ms.flatten(),
            durability: patch.durability.flatten(),
            publish_acl: patch.publish_acl.flatten(),
            subscribe_acl: patch.subscribe_acl.flatten(),
            compact: patch.compact.unwrap_or(false),
        };
        Ok(TopicBody { topic, config })
    }

    pub fn write(&self, out: &mut String) {
        TopicDoc {
            topic: self.topic.clone(),
            config: self.config.clone(),
            streams: Vec::new(),
            groups: Vec::new(),
            defaults: None,
        }
        .write(out);
    }
}

/// `PATCH /topics/{topic}`: what is absent stays, what is `null` goes back to its default (RFC 7396).
pub fn parse_topic_patch(text: &str) -> Result<TopicPatch, FrameError> {
    read_patch(&Fields::of_document(text)?)
}

fn read_patch(fields: &Fields<'_>) -> Result<TopicPatch, FrameError> {
    let number = |field, min| {
        let given = fields.given(field).is_some();
        Ok::<_, FrameError>(given.then_some(fields.integer(field, min..=INTEGER_MAX)?))
    };
    Ok(TopicPatch {
        partitions: read_partitions(fields)?,
        retention_ms: number(Field::RetentionMs, 1)?,
        retention_bytes: number(Field::RetentionBytes, 1)?,
        max_attempts: match fields.given(Field::MaxAttempts) {
            None => None,
            Some(_) => Some(fields.small(Field::MaxAttempts, 1..=u32::MAX)?),
        },
        ack_timeout_ms: number(Field::AckTimeoutMs, 1)?,
        dedupe_window_ms: number(Field::DedupeWindowMs, 0)?,
        durability: match (fields.given(Field::Durability), fields.get(Field::Durability)) {
            (None, _) => None,
            (Some(_), None) => Some(None::<Durability>),
            (Some(_), Some(_)) => Some(Some(read_durability(fields)?)),
        },
        publish_acl: read_list(fields, Field::PublishAcl)?,
        subscribe_acl: read_list(fields, Field::SubscribeAcl)?,
        compact: match fields.given(Field::Compact) {
            None => None,
            Some(_) => Some(fields.flag(Field::Compact)?),
        },
    })
}

fn read_list(fields: &Fields<'_>, field: Field) -> Result<Option<Option<AccessList>>, FrameError> {
    let Some(raw) = fields.get(field) else {
        return Ok(fields.given(field).map(|_| None));
    };
    let entries: Vec<String> = serde_json::from_str(raw.get()).map_err(|_| FrameError::wrong(field, raw))?;
    let list = AccessList::try_from(entries);
    list.map(|list| Some(Some(list)))
        .map_err(|error| FrameError::bad_frame(format!("{} is refused: {error}", field.name())))
}

/// Not the field of the same name in OK, which the table describes.
fn read_partitions(fields: &Fields<'_>) -> Result<Option<u32>, FrameError> {
    let Some(raw) = fields.get(Field::Partitions) else {
        return Ok(None);
    };
    match raw.get().parse() {
        Ok(partitions @ 1..=PARTITIONS_MAX) => Ok(Some(partitions)),
        _ => Err(FrameError::unlike(
            Field::Partitions,
            raw,
            format_args!("a whole number from 1 to {PARTITIONS_MAX}"),
        )),
    }
}

/// A topic as it is shown: its settings, its logs, its groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicDoc {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[serde(flatten)]
    #[schemars(with = "TopicSettings")]
    pub config: TopicConfig,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamDoc>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub groups: Vec<Group>,
    /// What holds for settings that the topic does not have; not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<TopicDefaults>,
}

/// The server's own settings, where a topic may have its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicDefaults {
    pub max_attempts: u32,
    pub ack_timeout_ms: u64,
    pub dedupe_window_ms: u64,
    #[schemars(schema_with = "schema::durability")]
    pub durability: Durability,
}

/// One partition's log: the first offset still there, and the offset the next event will get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamDoc {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub start: Offset,
    #[schemars(schema_with = "schema::offset")]
    pub next: Offset,
}

impl TopicDoc {
    pub fn write(&self, out: &mut String) {
        super::write_doc(out, self);
    }
}

/// `GET /topics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicList {
    pub topics: Vec<TopicDoc>,
    /// There are more: ask again with this as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::topic")]
    pub next: Option<TopicName>,
}
