//! `GET /dead-letters` and `POST /dead-letters/{topic}/replay`. Dead letters of groups are read like any topic's
//! events, with `GET /topics/{dlq}/events`; those of durable handlers are in a table of their own and are read with
//! `GET /dead-letters?handler=`.

use millrace_model::{Offset, Partition, Timestamp, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::FrameError;
use crate::field::Field;
use crate::fields::{FrameFields, INTEGER_MAX};
use crate::http::topic::StreamDoc;
use crate::schema;

/// How many letters a request replays that gives no limit.
const REPLAY_LIMIT_DEFAULT: u32 = 100;
const REPLAY_LIMIT_MAX: u32 = 10_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetters {
    pub dead_letters: Vec<DeadLetterTopic>,
    /// Present if there are more: send it as `after` to get the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::topic")]
    pub next: Option<TopicName>,
    /// Durable handlers that gave up on events; only on the first page. `GET /dead-letters?handler=` shows the letters.
    #[serde(default)]
    pub handlers: Vec<HandlerLetters>,
}

/// The letters of one durable handler about events of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandlerLetters {
    pub handler: String,
    /// The topic whose events the handler gave up on.
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    pub count: u64,
    /// When the handler gave up on the first and on the last of these events.
    #[schemars(schema_with = "schema::ts")]
    pub oldest_ts: Timestamp,
    #[schemars(schema_with = "schema::ts")]
    pub newest_ts: Timestamp,
}

/// A page of a durable handler's letters, the oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HandlerLettersPage {
    pub handler: String,
    pub letters: Vec<HandlerLetter>,
    /// Present if there are more: send it as `after` to get the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandlerLetter {
    /// The event's own id.
    pub event_id: String,
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::partition")]
    pub partition: Partition,
    #[schemars(schema_with = "schema::offset")]
    pub offset: Offset,
    pub attempts: u32,
    pub error: String,
    #[schemars(schema_with = "schema::ts")]
    pub failed_ts: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The payload as it was published; absent if the event was too large to be copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    pub payload: Option<Box<RawValue>>,
    /// Payload, key and error are withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterTopic {
    /// The topic whose events became these letters.
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    /// The topic that holds the letters.
    #[schemars(schema_with = "schema::topic")]
    pub dlq: TopicName,
    pub count: u64,
    /// When the newest letter was written; absent if the topic holds no letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ts")]
    pub last_ts: Option<Timestamp>,
    pub streams: Vec<StreamDoc>,
}

/// Publishes the events of dead letters to their topic again; `{}` or no body replays the first hundred of partition 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    pub partition: Partition,
    /// The offset of the first letter to replay; `None` = the first one there is.
    pub offset: Option<Offset>,
    pub limit: u32,
}

impl Replay {
    pub fn parse(text: &str) -> Result<Replay, FrameError> {
        let fields = FrameFields::of_document(if text.trim().is_empty() { "{}" } else { text })?;
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
    /// The offset of the letter at which to continue.
    #[schemars(schema_with = "schema::offset")]
    pub next: Offset,
    /// Whether there is a letter at or behind `next`.
    #[serde(default)]
    pub more: bool,
}
