//! Delayed events while they wait in [`Space::Due`]: what each waits for, and what moving it to its topic takes.
//!
//! Several processes may move rows of one store: servers and sessions. Every move carries [`DueEvent::waits`] as a check, so
//! each event is stored once.

use bytes::Bytes;

use crate::batch::{Append, Check, Op, Space};
use crate::record::{DueRow, keys};
use crate::stream::{Partition, TopicKey};
use crate::time::Timestamp;

/// What a delayed event waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueBy {
    /// A time of day.
    Wall,
    /// The end of a duration.
    Elapsed,
}

impl DueBy {
    pub const ALL: [DueBy; 2] = [DueBy::Wall, DueBy::Elapsed];

    /// What the row with this key waits for.
    pub fn of(key: &str) -> DueBy {
        if key < keys::DUE_AFTER { DueBy::Wall } else { DueBy::Elapsed }
    }

    /// The keys of its rows: from the first on, up to, not including, the second.
    pub fn key_range(self) -> (&'static str, Option<&'static str>) {
        match self {
            DueBy::Wall => ("", Some(keys::DUE_AFTER)),
            DueBy::Elapsed => (keys::DUE_AFTER, None),
        }
    }

    /// The key of a row that waits until `at`, in the time it waits for.
    pub fn key(self, at: Timestamp, nonce: u64, ordinal: u32) -> String {
        match self {
            DueBy::Wall => keys::due(at, nonce, ordinal),
            DueBy::Elapsed => keys::due_after(at, nonce, ordinal),
        }
    }
}

/// A row of [`Space::Due`] that can be read.
#[derive(Clone, Debug, PartialEq)]
pub struct DueEvent {
    pub key: String,
    pub topic: TopicKey,
    pub row: DueRow,
}

impl DueEvent {
    /// `None` for a row that cannot be read or names no topic: see [`set_aside`].
    pub fn read(key: &str, value: &[u8]) -> Option<DueEvent> {
        let row = DueRow::decode(key, value).ok()?;
        Some(DueEvent { key: key.to_owned(), topic: TopicKey::parse(&row.topic).ok()?, row })
    }

    /// Holds until somebody has moved or removed the row.
    pub fn waits(&self) -> Check {
        Check::Present { space: Space::Due, key: self.key.clone() }
    }

    /// Holds until the topic is deleted that the event was published to, also if there is one of that name again.
    pub fn topic_stands(&self) -> Check {
        Check::Incarnation { topic: self.topic.clone(), made: self.row.made }
    }

    /// Removes the row, and frees its id.
    pub fn removal(&self) -> Vec<Op> {
        let mut ops = vec![Op::Delete { space: Space::Due, key: self.key.clone() }];
        ops.extend(self.row.id.as_ref().map(|id| Op::Delete {
            space: Space::DueIds,
            key: keys::due_id(&self.topic, self.row.made, id),
        }));
        ops
    }

    /// The event had its id from the moment it was confirmed. It is no duplicate, whatever the clock has done since.
    pub fn append(&self) -> Append {
        let stream = self.topic.stream(Partition(self.row.partition));
        Append { stream, event: self.row.new_event(), dedupe_window_ms: 0 }
    }
}

/// What becomes of a row that cannot be read or names no topic. Its event was confirmed, so it is kept, where nobody trips
/// over it.
pub fn set_aside(key: &str, value: Bytes) -> [Op; 2] {
    let quarantine = format!("quarantine/due/{key}");
    [
        Op::Delete { space: Space::Due, key: key.to_owned() },
        Op::Put { space: Space::Kv, key: quarantine, value },
    ]
}
