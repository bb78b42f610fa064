//! Topics and their settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{
    AccessList, AckMode, Durability, Group, GroupAccessPatch, GroupKey, Offset, PARTITIONS_MAX, Partition,
    TopicConfig, TopicName, TopicPatch,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client_frame::read_ack_mode;
use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX};
use crate::schema;
use crate::schema::TopicSettings;
use crate::server_frame::read_durability;

/// `POST /topics`. A field that is absent or `null` is not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicBody {
    pub topic: TopicName,
    pub settings: TopicPatch,
}

impl TopicBody {
    pub fn parse(text: &str) -> Result<TopicBody, FrameError> {
        let fields = FrameFields::of_document(text)?;
        let topic = fields.topic()?;
        let settings = TopicPatch {
            compact: fields.get(Field::Compact).map(|_| fields.flag(Field::Compact)).transpose()?,
            sticky: fields.get(Field::Sticky).map(|_| fields.flag(Field::Sticky)).transpose()?,
            ..read_patch(&fields)?.without_resets()
        };
        Ok(TopicBody { topic, settings })
    }
}

/// `PATCH /topics/{topic}`: an absent field stays as it is, a field that is `null` is reset to its default (RFC 7396).
pub fn parse_topic_patch(text: &str) -> Result<TopicPatch, FrameError> {
    read_patch(&FrameFields::of_document(text)?)
}

fn read_patch(fields: &FrameFields<'_>) -> Result<TopicPatch, FrameError> {
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
            // Whether commits are replicated is the engine's to say: a topic cannot ask for it.
            (Some(_), Some(raw)) => match read_durability(fields)? {
                Durability::Replicated => return Err(FrameError::wrong(Field::Durability, raw)),
                level => Some(Some(level)),
            },
        },
        publish_acl: read_list(fields, Field::PublishAcl)?,
        subscribe_acl: read_list(fields, Field::SubscribeAcl)?,
        group_acl: read_group_lists(fields)?,
        compact: read_flag(fields, Field::Compact)?,
        ack_mode: match fields.given(Field::TopicAckMode) {
            None => None,
            Some(_) => Some(read_ack_mode(fields, Field::TopicAckMode)?),
        },
        sticky: read_flag(fields, Field::Sticky)?,
        schema: read_schema(fields)?,
        force_schema: false,
    })
}

fn read_flag(fields: &FrameFields<'_>, field: Field) -> Result<Option<bool>, FrameError> {
    fields.given(field).map(|_| fields.flag(field)).transpose()
}

/// Reads the document only; the engine checks whether it is a schema.
fn read_schema(fields: &FrameFields<'_>) -> Result<Option<Option<Arc<Value>>>, FrameError> {
    let Some(raw) = fields.get(Field::Schema) else {
        return Ok(fields.given(Field::Schema).map(|_| None));
    };
    match serde_json::from_str(raw.get()) {
        Ok(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Some(Some(Arc::new(schema)))),
        Ok(_) => Err(FrameError::wrong(Field::Schema, raw)),
        Err(error) => Err(FrameError::bad_frame(format!("schema cannot be read: {error}"))),
    }
}

fn read_list(fields: &FrameFields<'_>, field: Field) -> Result<Option<Option<AccessList>>, FrameError> {
    let Some(raw) = fields.get(field) else {
        return Ok(fields.given(field).map(|_| None));
    };
    let entries: Vec<String> = serde_json::from_str(raw.get()).map_err(|_| FrameError::wrong(field, raw))?;
    let list = AccessList::try_from(entries);
    list.map(|list| Some(Some(list)))
        .map_err(|error| FrameError::bad_frame(format!("{} is refused: {error}", field.name())))
}

fn read_group_lists(fields: &FrameFields<'_>) -> Result<Option<Option<GroupAccessPatch>>, FrameError> {
    let Some(raw) = fields.get(Field::GroupAcl) else {
        return Ok(fields.given(Field::GroupAcl).map(|_| None));
    };
    let refused =
        |why: String| FrameError::bad_frame(format!("{} is refused: {why}", Field::GroupAcl.name()));
    let lists: BTreeMap<String, Option<Vec<String>>> =
        serde_json::from_str(raw.get()).map_err(|_| FrameError::wrong(Field::GroupAcl, raw))?;
    let mut patch = GroupAccessPatch::new();
    for (name, entries) in lists {
        let group = GroupKey::new(&name).map_err(|error| refused(error.to_string()))?;
        let list = entries.map(AccessList::try_from).transpose();
        let list = list.map_err(|error| refused(format!("the list of group {group}: {error}")))?;
        patch.insert(group, list);
    }
    Ok(Some(Some(patch)))
}

/// Reads `partitions` as a number. (The table of fields describes another field of this name, in OK frames.)
fn read_partitions(fields: &FrameFields<'_>) -> Result<Option<u32>, FrameError> {
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
    /// The version of the schema that is in force.
    #[serde(default, rename = "schemaVersion", skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<u32>,
    /// In the answer to a change of the schema: the retained events that the new schema was compared with.
    #[serde(default, rename = "schemaChecked", skip_serializing_if = "Vec::is_empty")]
    pub schema_checked: Vec<CheckedDoc>,
    /// In the same answer: how many delayed events the new schema was compared with.
    #[serde(default, rename = "schemaCheckedDelayed", skip_serializing_if = "is_zero")]
    pub schema_checked_delayed: u64,
    /// The server's defaults for settings that the topic does not have; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<TopicDefaults>,
    /// In lists of a server that leads: how much there is, and how far everybody is with it.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub figures: Option<TopicFigures>,
}

/// The figures that a list has of a topic, beside its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicFigures {
    /// Offsets between the start and the end of all partitions; compaction may have removed events among them.
    pub events: u64,
    /// Bytes of payloads, keys and headers that are retained, roughly.
    pub bytes: u64,
    /// The time of the last event; 0 if there was none.
    pub last_ts: u64,
    /// Since the start of the server.
    pub published: u64,
    pub delivered: u64,
    /// The sum over all groups.
    pub lag: u64,
    /// Letters about events of this topic that are kept.
    pub dead_letters: u64,
    /// The groups of the topic, by name.
    pub standing: BTreeMap<String, TopicGroupFigures>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopicGroupFigures {
    pub lag: u64,
    pub inflight: u64,
    pub paused: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it like this")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The server's defaults of settings that a topic may override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopicDefaults {
    pub max_attempts: u32,
    pub ack_timeout_ms: u64,
    pub dedupe_window_ms: u64,
    #[schemars(schema_with = "schema::durability")]
    pub durability: Durability,
    #[schemars(schema_with = "schema::ack_mode")]
    pub ack_mode: AckMode,
}

/// The log of a partition: the first offset that is retained, and the offset that the next event will get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamDoc {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub start: Offset,
    #[schemars(schema_with = "schema::offset")]
    pub next: Offset,
}

/// The retained events of one partition from one offset through another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedDoc {
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub from: Offset,
    #[schemars(schema_with = "schema::offset")]
    pub through: Offset,
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
    /// Present if there are more: send it as `after` to get the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::topic")]
    pub next: Option<TopicName>,
}
