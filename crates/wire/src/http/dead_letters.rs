//! `GET /dead-letters` and `POST /dead-letters/{topic}/replay`. The letters themselves are read like any topic's
//! events, with `GET /topics/{dlq}/events`.

use millrace_model::{Offset, Partition, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{Fields, INTEGER_MAX};
use crate::http::topic::StreamDoc;
use crate::schema;

/// Letters replayed by one request that does not say how many.
const REPLAY_LIMIT_DEFAULT: u32 = 100;
const REPLAY_LIMIT_MAX: u32 = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetters {
    pub dead_letters: Vec<DeadLetterTopic>,
    /// There are more: ask again with this as `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::topic")]
    pub next: Option<TopicName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetterTopic {
    /// The topic whose events ended here.
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    /// The topic that holds the letters.
    #[schemars(schema_with = "schema::topic")]
    pub dlq: TopicName,
    pub count: u64,
    pub streams: Vec<StreamDoc>,
}

/// Publishes letters to their topic again; `{}` or no body replays the first hundred of partition 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    pub partition: Partition,
    /// The first letter's offset; `None` = the first there is.
    pub offset: Option<Offset>,
    pub limit: u32,
}

impl Replay {
    pub fn parse(text: &str) -> Result<Replay, FrameError> {
        let fields = Fields::of_document(if text.trim().is_empty() { "{}" } else { text })?;
        Ok(Replay {
            partition: Partition(fields.small(Field::Partition, 0..=u32::MAX)?.unwrap_or(0)),
            offset: fields.integer(Field::Offset, 0..=INTEGER_MAX)?.map(Offset),
            limit: fields.small(Field::Limit, 1..=REPLAY_LIMIT_MAX)?.unwrap_or(REPLAY_LIMIT_DEFAULT),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replayed {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::topic")]
    pub dlq: TopicName,
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    /// Letters whose event was published again.
    pub replayed: u64,
    /// Letters that had been replayed before, within the topic's dedupe window: nothing was stored for them.
    #[serde(default)]
    pub duplicates: u64,
    /// The letter at which to go on.
    #[schemars(schema_with = "schema::offset")]
    pub next: Offset,
    /// Whether there is a letter at or behind `next`.
    #[serde(default)]
    pub more: bool,
}
