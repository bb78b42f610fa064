//! The port to what a commit is resolved against: the tables inside a transaction, or the tables with the commits that
//! are not in them yet.

use bytes::Bytes;
use millrace_model::{EventId, Op, Partition, Space, Stream, TopicKey};
use rusqlite::Connection;

use crate::error::Attempt;
use crate::rows::tables::{self, Damaged};
use crate::writing::stage::Staged;
use crate::writing::transaction::Writer;

/// The store as the operations of a commit see it: as the commits before this one, and its own earlier operations, left
/// it.
pub(crate) trait CommitTarget {
    fn row(&self, space: Space, key: &str) -> Attempt<Option<Bytes>>;

    fn has_rows(&self, space: Space) -> Attempt<bool>;

    /// Applies a put or a delete of a row, and records what it changed.
    fn write(&mut self, op: &Op) -> Attempt<()>;

    /// Returns the stream if it has events that are not in the tables yet.
    fn unsettled_stream(&self, stream: &Stream) -> Option<Staged>;

    /// Returns where an event with this id is, and its time, if the event is not in the tables yet.
    fn unsettled_event(&self, hash: u64, topic: &TopicKey, id: &EventId) -> Option<(Partition, u64, u64)>;

    /// Returns how many ids were brought by events that are not in the tables yet.
    fn unsettled_ids(&self) -> usize;

    /// Reads events that earlier commits left in the tables. Damage met on this connection ends no transaction.
    fn lookups(&self) -> &Connection;

    fn damaged(&self) -> Damaged;
}

/// The tables, inside a transaction. The transaction begins with everything settled.
impl CommitTarget for Writer {
    fn row(&self, space: Space, key: &str) -> Attempt<Option<Bytes>> {
        tables::get(&self.conn, space, key, self.damaged)
    }

    fn has_rows(&self, space: Space) -> Attempt<bool> {
        tables::any(&self.conn, space)
    }

    fn write(&mut self, op: &Op) -> Attempt<()> {
        tables::write(self, op)
    }

    fn unsettled_stream(&self, _: &Stream) -> Option<Staged> {
        None
    }

    fn unsettled_event(&self, _: u64, _: &TopicKey, _: &EventId) -> Option<(Partition, u64, u64)> {
        None
    }

    fn unsettled_ids(&self) -> usize {
        0
    }

    fn lookups(&self) -> &Connection {
        &self.lookups
    }

    fn damaged(&self) -> Damaged {
        self.damaged
    }
}
