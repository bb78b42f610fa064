//! Rows of the small tables that belong to the bus: their keys as text, their values as JSON.

use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clocks::boot::BootMark;
use crate::clocks::time::Timestamp;
use crate::log::event::{EventBody, Headers, Lineage, NewEvent, Priority};
use crate::log::id::EventId;
use crate::log::json::JsonText;
use crate::log::stream::{Offset, Stream, TopicKey};
use crate::rows::batch::Durability;
use crate::topics::access::Actor;
use crate::topics::topic_config::{Filter, TopicConfig};

/// How many offsets past its commit a group may have acknowledged. At this distance delivery pauses.
pub const AHEAD_MAX: u64 = 8192;

#[derive(Debug, thiserror::Error)]
#[error("row {key:?} cannot be read: {source}")]
pub struct RowError {
    pub key: String,
    pub source: serde_json::Error,
}

/// Keys of the small tables. Names contain no slash, so a slash always separates.
pub mod keys {
    use super::{EventId, Offset, Stream, Timestamp, TopicKey};
    use crate::topics::name::Group;

    pub use crate::handling::handler_keys::*;

    /// Prefix of the router's rows in [`crate::Space::Kv`]: its timers, the values of Memory.
    pub const ROUTER: &str = "router/";

    /// `namespace/topic`
    pub fn topic(topic: &TopicKey) -> String {
        topic.as_str().to_owned()
    }

    /// `namespace/topic/group`
    pub fn group(topic: &TopicKey, group: &Group) -> String {
        format!("{topic}/{group}")
    }

    /// `namespace/topic/group/partition`
    pub fn cursor(stream: &Stream, group: &Group) -> String {
        format!("{}/{group}/{}", stream.topic, stream.partition)
    }

    /// `namespace/topic/group/partition/offset`, the offset in 16 hex digits so that order by key is order by offset.
    pub fn attempt(stream: &Stream, group: &Group, offset: Offset) -> String {
        format!("{}/{group}/{}/{:016x}", stream.topic, stream.partition, offset.0)
    }

    /// The row in [`crate::Space::Kv`] that holds the elapsed time of the bus: see [`crate::ElapsedRow`].
    pub const ELAPSED: &str = "bus/elapsed";

    /// The same row for the timers of the CQRS loop.
    pub const ROUTER_ELAPSED: &str = "router/elapsed";

    /// The row in [`crate::Space::Kv`] with the time that ages of events are counted from, written by servers and
    /// sessions: see [`crate::AgesRow`].
    pub const AGES: &str = "bus/ages";

    /// Prefix of keys made by [`due_after`]; they sort after all those made by [`due`].
    pub const DUE_AFTER: &str = "t";

    /// Sorts after all keys made by [`due`] and [`due_after`].
    pub const DUE_END: &str = "u";

    /// The key of an event that is due at a wall time. The time comes first, in hex, so that the first row is the next
    /// one due; the nonce distinguishes equal times.
    pub fn due(at: Timestamp, nonce: u64, ordinal: u32) -> String {
        format!("{:012x}/{nonce:016x}/{ordinal:08x}", at.0)
    }

    /// The key of an event that waits for a duration: `at` is a moment of elapsed time.
    pub fn due_after(at: Timestamp, nonce: u64, ordinal: u32) -> String {
        [DUE_AFTER, &due(at, nonce, ordinal)].concat()
    }

    /// Returns when the row of a key made by [`due`] or [`due_after`] is due.
    pub fn due_time(key: &str) -> Option<Timestamp> {
        let time = key.strip_prefix(DUE_AFTER).unwrap_or(key).split('/').next()?;
        u64::from_str_radix(time, 16).ok().map(Timestamp)
    }

    /// Prefix of the rows of a topic's schema versions in [`crate::Space::Kv`]: `schema/namespace/topic/incarnation/`.
    /// The successor of a deleted topic has another `incarnation`, so it starts without versions.
    pub fn schema_versions(topic: &TopicKey, incarnation: u64) -> String {
        format!("schema/{topic}/{incarnation:016x}/")
    }

    /// The key of a schema version: the version in hex, so that order by key is order by version.
    pub fn schema_version(topic: &TopicKey, incarnation: u64, version: u32) -> String {
        format!("{}{version:08x}", schema_versions(topic, incarnation))
    }

    /// `namespace/topic/incarnation/id`: with `incarnation`, ids of a deleted topic do not block its successor.
    pub fn due_id(topic: &TopicKey, incarnation: u64, id: &EventId) -> String {
        format!("{topic}/{incarnation:016x}/{id}")
    }
}

pub(crate) fn encode<T: Serialize>(row: &T) -> Bytes {
    // These rows are maps of strings and numbers: their serialisation has no failing case.
    serde_json::to_vec(row).map_or_else(|_| Bytes::new(), Bytes::from)
}

pub(crate) fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, RowError> {
    serde_json::from_slice(value).map_err(|source| RowError { key: key.to_owned(), source })
}

macro_rules! row {
    ($type:ident) => {
        impl $type {
            pub fn encode(&self) -> Bytes {
                encode(self)
            }

            pub fn decode(key: &str, value: &[u8]) -> Result<Self, RowError> {
                decode(key, value)
            }
        }
    };
}
pub(crate) use row;

row!(TopicRow);
row!(GroupRow);
row!(CursorRow);
row!(AttemptRow);
row!(DueRow);
row!(TopicSchemaRow);
row!(ElapsedRow);
row!(AgesRow);

/// A topic: its settings, and its incarnation among all topics that ever had its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRow {
    #[serde(flatten)]
    pub config: TopicConfig,
    /// The incarnation: a random number drawn when the topic was created. Delayed events carry it, so that no event of
    /// a deleted topic reaches its successor.
    #[serde(rename = "made", default)]
    pub incarnation: u64,
    /// How many schemas the topic has had; the last of them is in force if [`TopicConfig::schema`] is set.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub schema_version: u32,
    /// The oldest version of which a [`TopicSchemaRow`] is kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub schema_first: u32,
    /// The agent whose request created the topic, unless that was an administrator: the topic counts against the
    /// agent's share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Actor>,
}

impl TopicRow {
    /// Returns [`TopicRow::incarnation`] of an encoded row without decoding the rest; `None` for a row that cannot be
    /// decoded.
    pub fn incarnation_of(value: &[u8]) -> Option<u64> {
        #[derive(Deserialize)]
        struct Incarnation {
            #[serde(rename = "made", default)]
            incarnation: u64,
        }
        serde_json::from_slice::<Incarnation>(value).ok().map(|row| row.incarnation)
    }
}

pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A version of a topic's schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicSchemaRow {
    pub version: u32,
    /// When it was set.
    pub set: Timestamp,
    /// Set without comparing it with the retained events.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    pub schema: Arc<Value>,
}

/// A group of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    #[serde(default, skip_serializing_if = "Filter::is_empty")]
    pub filter: Filter,
    #[serde(default)]
    pub created: Timestamp,
    /// The agent whose subscription created the group, unless that was an administrator: the group's cursors count
    /// against the agent's share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<Actor>,
    /// An operator holds the group's deliveries back, until an operator lets them go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
}

/// How far a group is in one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorRow {
    /// Everything up to here is done.
    pub committed: Offset,
    /// Everything up to here has been sent since the server started, or is done. Independent of attempts.
    pub delivered: Offset,
    /// Done beyond the commit: bit `i` stands for offset `committed + 1 + i`.
    #[serde(default, skip_serializing_if = "Bitmap::is_empty")]
    pub ahead: Bitmap,
    /// When `committed` was first written with this value. Absent in rows of versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated: Option<Timestamp>,
}

/// An event whose deliveries have failed, or that has to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRow {
    pub attempts: u32,
    /// When the event may be delivered again, in elapsed time: see [`ElapsedRow`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The elapsed time of the bus or of the CQRS loop (the clock of delays, see [`crate::ElapsedTime`]) beside the wall
/// time, as both were when a delay was last stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElapsedRow {
    pub elapsed: Timestamp,
    pub wall: Timestamp,
    /// The same moment by the machine's uptime, if the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootMark>,
    /// The system's wall clock showed another time than `wall`, and it was not known which of the two was right.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_doubt: bool,
}

/// The time that ages of events were counted from at some moment: see [`crate::AgeGuard`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgesRow {
    pub latest: Timestamp,
    /// The same moment by the machine's uptime, if the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootMark>,
}

/// A delayed event: everything that its append will need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueRow {
    pub topic: String,
    /// [`TopicRow::incarnation`] of the topic it was published to.
    #[serde(rename = "made")]
    pub incarnation: u64,
    pub partition: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    pub priority: Priority,
    #[serde(default)]
    pub lineage: Lineage,
    pub durability: Durability,
    pub dedupe_window_ms: u64,
    pub payload: String,
}

impl DueRow {
    /// Returns the row of an event that is to be delayed. Its topic's incarnation is filled in by the commit.
    pub fn of(
        stream: &Stream,
        id: EventId,
        body: &EventBody,
        durability: Durability,
        dedupe_window_ms: u64,
    ) -> DueRow {
        DueRow {
            topic: stream.topic.as_str().to_owned(),
            incarnation: 0,
            partition: stream.partition.0,
            id: Some(id),
            key: body.key.as_deref().map(str::to_owned),
            headers: body.headers.as_ref().map(|headers| headers.json().as_str().to_owned()),
            priority: body.priority,
            lineage: body.lineage.clone(),
            durability,
            dedupe_window_ms,
            payload: body.payload.as_str().to_owned(),
        }
    }

    /// Returns an upper estimate of the encoded row's size: texts are quoted again.
    pub fn bytes(&self) -> usize {
        /// Names of fields, numbers, ids of the lineage.
        const FIXED: usize = 2048;
        let texts = [Some(&self.payload), self.headers.as_ref(), self.key.as_ref(), Some(&self.topic)];
        FIXED + texts.into_iter().flatten().map(|text| quoted_len(text)).sum::<usize>()
    }

    pub fn new_event(&self) -> NewEvent {
        let json = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        NewEvent {
            id: self.id.clone(),
            body: Arc::new(EventBody {
                key: self.key.as_deref().map(Into::into),
                headers: self.headers.as_deref().map(|text| Headers::from_stored(json(text))),
                priority: self.priority,
                lineage: self.lineage.clone(),
                payload: JsonText::from_stored(json(&self.payload)),
            }),
        }
    }
}

/// Returns the bytes of a text inside a JSON string.
fn quoted_len(text: &str) -> usize {
    let quoted = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    });
    quoted.sum()
}

/// A set of small numbers, stored as hex digits, lowest bit of the first byte first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Bitmap(Vec<u8>);

impl Bitmap {
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    pub fn insert(&mut self, bit: u64) {
        let at = (bit / 8) as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (bit % 8);
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.0.len() as u64 * 8).filter(|bit| self.0[(bit / 8) as usize] & 1 << (bit % 8) != 0)
    }
}

impl From<Bitmap> for String {
    fn from(bitmap: Bitmap) -> String {
        bitmap.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl From<String> for Bitmap {
    fn from(text: String) -> Bitmap {
        let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
        Bitmap(
            text.as_bytes()
                .chunks(2)
                .map(|pair| pair.iter().fold(0, |byte, c| byte << 4 | digit(*c)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_with_acks_ahead_survives_its_row() {
        let mut row = CursorRow { committed: Offset(7), delivered: Offset(900), ..CursorRow::default() };
        for bit in [0, 1, 63, 64, 800] {
            row.ahead.insert(bit);
        }
        let back = CursorRow::decode("k", &row.encode()).unwrap();
        assert_eq!(back, row);
        assert_eq!(back.ahead.iter().collect::<Vec<_>>(), [0, 1, 63, 64, 800]);
    }

    #[test]
    fn a_due_row_takes_no_more_than_it_says() {
        let text = "\"\\\n\u{1}ü".repeat(1000);
        let payload = JsonText::from_value(&text).unwrap();
        let body = EventBody { key: Some(text.as_str().into()), ..EventBody::of(payload) };
        let stream = TopicKey::parse("default/t").unwrap().stream(crate::Partition(0));
        let row = DueRow::of(&stream, EventId::mint(Timestamp(1), 2, 3), &body, Durability::Fsync, u64::MAX);
        let encoded = row.encode().len();
        assert!((encoded..encoded + 2048).contains(&row.bytes()), "{encoded} {}", row.bytes());
    }

    #[test]
    fn due_keys_sort_by_time() {
        let (first, last) =
            (|ms| keys::due(Timestamp(ms), 0, 0), |ms| keys::due(Timestamp(ms), u64::MAX, u32::MAX));
        assert!(last(9) < first(10) && first(10) < last(10) && last(10) < first(11));
    }
}
