//! Dead letters one by one: why there are some, and the choice of those to replay or delete.

use std::collections::BTreeMap;

use millrace_model::{Offset, Partition, TopicName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::FrameError;
use crate::schema;

/// Letters that one request may name.
pub const LETTERS_CHOSEN_MAX: usize = 500;

/// `GET /dead-letters/{topic}/summary`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LetterSummary {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    /// Letters that were looked at, the newest of each partition.
    pub scanned: u64,
    /// False if there are letters or reasons beyond.
    pub complete: bool,
    /// The most frequent first.
    pub reasons: Vec<LetterReason>,
    /// The texts of reasons are withheld from the caller; those of a group are one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withheld: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LetterReason {
    /// `group`, or `handler` for a durable handler.
    pub kind: String,
    /// The group, or the handler.
    pub group: String,
    pub reason: String,
    pub count: u64,
    pub first_ts: u64,
    pub last_ts: u64,
    /// The newest of these letters: `[partition, offset]` in the topic of letters; of a handler, the place of the event.
    pub sample: (u32, u64),
}

/// `POST /dead-letters/{topic}/replay` with letters that are named, and `POST /dead-letters/{topic}/delete`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChosenLetters {
    /// `[partition, offset]` in the topic of letters.
    pub letters: Vec<(u32, u64)>,
    /// Letters whose events are changed before they are published again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edited: Vec<EditedLetter>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EditedLetter {
    pub partition: u32,
    pub offset: u64,
    /// Absent members stay as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "serde_json::Value")]
    pub payload: Option<Box<RawValue>>,
    /// `null` takes the key away.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub key: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
}

/// Tells `null` from absent.
#[allow(clippy::option_option, reason = "absent, null and a key mean three things")]
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

impl ChosenLetters {
    /// Returns `None` if the body names no letters.
    pub fn parse(text: &str) -> Result<Option<ChosenLetters>, FrameError> {
        if text.trim().is_empty() {
            return Ok(None);
        }
        let chosen: ChosenLetters = serde_json::from_str(text).map_err(|error| {
            FrameError::bad_frame(format!("the choice of letters cannot be read: {error}"))
        })?;
        let named = chosen.letters.len() + chosen.edited.len();
        if named > LETTERS_CHOSEN_MAX {
            let why = format!("{named} letters are named: at most {LETTERS_CHOSEN_MAX} are allowed");
            return Err(FrameError::bad_frame(why));
        }
        Ok((named > 0).then_some(chosen))
    }

    /// The places of all letters that are named.
    pub fn places(&self) -> impl Iterator<Item = (Partition, Offset)> + '_ {
        let edited = self.edited.iter().map(|one| (one.partition, one.offset));
        let all = self.letters.iter().copied().chain(edited);
        all.map(|(partition, offset)| (Partition(partition), Offset(offset)))
    }
}

/// The fate of letters that were named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenReplayed {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::topic")]
    pub dlq: TopicName,
    /// Letters whose event was published again.
    pub replayed: u64,
    /// Letters that had been replayed before, within the topic's dedupe window: nothing was stored for them.
    pub duplicates: u64,
    /// `[partition, offset]` of each event, in the order of the request; for a duplicate that of the first time.
    pub published: Vec<(u32, u64)>,
    /// Letters that are not there, or that hold no payload.
    pub missing: Vec<(u32, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LettersDeleted {
    #[schemars(schema_with = "schema::topic")]
    pub topic: TopicName,
    #[schemars(schema_with = "schema::topic")]
    pub dlq: TopicName,
    pub deleted: u64,
    /// Letters that are not there.
    pub missing: Vec<(u32, u64)>,
}
