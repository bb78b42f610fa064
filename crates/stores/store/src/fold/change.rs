//! The changes in a record: what a commit came to.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{EventBody, EventId, Offset, Space, Stream, Timestamp, TopicKey};

use crate::fold::CopyPosition;

/// A change as every copy applies it. In a record rows, removals and drops come first, in the order they were decided,
/// then events stream by stream, then starts.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedChange {
    Put {
        space: Space,
        key: String,
        value: Bytes,
    },
    Delete {
        space: Space,
        key: String,
    },
    /// These events were removed by compaction; below `compacted_to` others may be missing too.
    Remove {
        stream: Stream,
        number: u64,
        offsets: Vec<Offset>,
        compacted_to: Offset,
    },
    /// All streams of the topic were dropped.
    Drop {
        topic: TopicKey,
        at: Timestamp,
    },
    /// Events were appended to a stream. A number that no stream has had before is a new stream.
    Append {
        stream: Stream,
        number: u64,
        events: Vec<RecordedEvent>,
    },
    /// Events below `start` were trimmed.
    Start {
        stream: Stream,
        number: u64,
        start: Offset,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    pub offset: Offset,
    pub ts: Timestamp,
    pub id: EventId,
    /// Whether a client brought the id, so that copies remember it for dedupe.
    pub is_brought: bool,
    pub body: Arc<EventBody>,
}

/// A record of the journal, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct FoldRecord {
    /// The position behind this record.
    pub position: CopyPosition,
    pub changes: Vec<RecordedChange>,
}

impl RecordedChange {
    /// Returns how many events the change appends.
    pub fn events(&self) -> usize {
        match self {
            RecordedChange::Append { events, .. } => events.len(),
            _ => 0,
        }
    }

    /// Returns whether other records may be applied in the same transaction. Removals, drops and starts look at events
    /// that earlier transactions have written.
    pub fn is_mergeable(&self) -> bool {
        matches!(
            self,
            RecordedChange::Put { .. } | RecordedChange::Delete { .. } | RecordedChange::Append { .. }
        )
    }
}
