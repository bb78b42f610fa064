//! `/delayed` and `/timers`: what waits for its time.

use millrace_model::{Partition, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// `GET /delayed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelayedList {
    /// First those that wait for a time of day, then those that wait for the end of a delay; each the next one first.
    pub delayed: Vec<DelayedDoc>,
    /// Set if there may be more: the next page comes `after` this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelayedDoc {
    /// Names the waiting event in `/delayed/{entry}`.
    pub entry: String,
    /// The id that the event will have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(with = "u32")]
    pub partition: Partition,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it is due, as things stand.
    pub due: u64,
    /// `time`: it waits for a time of day. `delay`: for the end of a delay, which a change of the clock does not move.
    pub waits_for: String,
    pub payload_bytes: u64,
    /// The key is withheld from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
    /// The topic was deleted after the event was delayed: it is never published.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub topic_gone: bool,
}

/// The fate of a delayed event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DelayedDone {
    pub entry: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    /// `published` or `cancelled`.
    pub state: String,
}

/// `GET /timers`: timers of the CQRS loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerList {
    /// The next one first.
    pub timers: Vec<TimerDoc>,
    /// Set if there are more: the next page comes `after` this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimerDoc {
    pub timer: String,
    /// When it is due, as things stand.
    pub due: u64,
    /// The timer waits for a time of day, and not for the end of a delay.
    pub absolute: bool,
    /// `command`, `query` or `event`: what it sends.
    pub kind: String,
    #[serde(rename = "type")]
    pub message_type: String,
    pub data_bytes: u64,
    /// The timer outlives the process.
    pub durable: bool,
    /// The agent that set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The capability that set it. Only that capability can cancel it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// The id of the `Timer.Set` that it follows from.
    pub set_by: String,
    /// The timer was due, and is sent again because nobody took its message.
    pub trying_again: bool,
}

/// A timer that was cancelled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimerCancelled {
    pub timer: String,
}
