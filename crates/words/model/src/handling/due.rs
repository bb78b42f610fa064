//! Delayed events while they wait in [`Space::Due`]: which clock each waits for, and the operations that move it to its
//! topic.
//!
//! Several processes may move rows of one store: servers and sessions. The batch of every move carries the check
//! [`DueEvent::waits`], so each event is stored once.

use bytes::Bytes;

use crate::clocks::time::Timestamp;
use crate::log::stream::{Partition, TopicKey};
use crate::rows::batch::{Append, Check, Op, Space};
use crate::rows::record::{DueRow, keys};

/// The clock that a delayed event waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueBy {
    /// The wall clock: the event waits for a point in time.
    Wall,
    /// Elapsed time: the event waits for the end of a duration.
    Elapsed,
}

impl DueBy {
    pub const ALL: [DueBy; 2] = [DueBy::Wall, DueBy::Elapsed];

    /// Returns the clock that the row with this key waits for.
    pub fn of(key: &str) -> DueBy {
        if key < keys::DUE_AFTER { DueBy::Wall } else { DueBy::Elapsed }
    }

    /// Returns the range of the keys of such rows: from the first, up to but not including the second.
    pub fn key_range(self) -> (&'static str, Option<&'static str>) {
        match self {
            DueBy::Wall => ("", Some(keys::DUE_AFTER)),
            DueBy::Elapsed => (keys::DUE_AFTER, None),
        }
    }

    /// Returns the key of a row that waits until `at` by this clock.
    pub fn key(self, at: Timestamp, nonce: u64, ordinal: u32) -> String {
        match self {
            DueBy::Wall => keys::due(at, nonce, ordinal),
            DueBy::Elapsed => keys::due_after(at, nonce, ordinal),
        }
    }
}

/// A decoded row of [`Space::Due`].
#[derive(Clone, Debug, PartialEq)]
pub struct DueEvent {
    pub key: String,
    pub topic: TopicKey,
    pub row: DueRow,
}

impl DueEvent {
    /// Returns `None` for a row that cannot be decoded or names no topic: see [`set_aside`].
    pub fn read(key: &str, value: &[u8]) -> Option<DueEvent> {
        let row = DueRow::decode(key, value).ok()?;
        Some(DueEvent { key: key.to_owned(), topic: TopicKey::parse(&row.topic).ok()?, row })
    }

    /// Returns a check that holds until somebody has moved or removed the row.
    pub fn waits(&self) -> Check {
        Check::Present { space: Space::Due, key: self.key.clone() }
    }

    /// Returns a check that holds until the topic that the event was published to is deleted. A later topic of that
    /// name does not count.
    pub fn topic_stands(&self) -> Check {
        Check::Incarnation { topic: self.topic.clone(), incarnation: self.row.incarnation }
    }

    /// Returns the operations that remove the row and free its id.
    pub fn removal(&self) -> Vec<Op> {
        let mut ops = vec![Op::Delete { space: Space::Due, key: self.key.clone() }];
        ops.extend(self.row.id.as_ref().map(|id| Op::Delete {
            space: Space::DueIds,
            key: keys::due_id(&self.topic, self.row.incarnation, id),
        }));
        ops
    }

    /// Returns the append of the event. Nothing is looked up for duplicates: the id was taken when the event was
    /// confirmed, whatever the clock has done since.
    pub fn append(&self) -> Append {
        let stream = self.topic.stream(Partition(self.row.partition));
        Append { stream, event: self.row.new_event(), dedupe_window_ms: 0 }
    }
}

/// Returns the operations that quarantine a row that cannot be decoded or names no topic. Its event was confirmed, so
/// the row is kept, out of everybody's way.
pub fn set_aside(key: &str, value: Bytes) -> [Op; 2] {
    let quarantine = format!("quarantine/due/{key}");
    [
        Op::Delete { space: Space::Due, key: key.to_owned() },
        Op::Put { space: Space::Kv, key: quarantine, value },
    ]
}
