//! The outbox: events that an application published inside a transaction of its own database. The record that holds
//! such an event also deletes its row, in one operation of the engine: published once, whoever dies in between.

use std::collections::HashMap;

use millrace_journal::{JournalError, OutboxId, OutboxRefusal, OutboxRow};
use millrace_model::{EventId, TopicKey};
use millrace_store::RecordedChange;
use parking_lot::Mutex;

use crate::JournalStore;

/// Events of the outbox that are being published, and the rows that they come from.
#[derive(Debug, Default)]
pub(crate) struct PublishingRows {
    rows: Mutex<HashMap<(TopicKey, EventId), OutboxId>>,
}

impl PublishingRows {
    /// Returns the rows whose events are among these changes.
    pub(crate) fn settled_by(&self, changes: &[RecordedChange]) -> Vec<OutboxId> {
        let rows = self.rows.lock();
        if rows.is_empty() {
            return Vec::new();
        }
        let mut settled = Vec::new();
        for change in changes {
            let RecordedChange::Append { stream, events, .. } = change else { continue };
            let brought = events.iter().filter(|event| event.is_brought);
            settled.extend(
                brought.filter_map(|event| rows.get(&(stream.topic.clone(), event.id.clone())).copied()),
            );
        }
        settled
    }
}

impl JournalStore {
    /// Returns rows of the engine's outbox in the order of their ids, from the one behind `after` on.
    pub fn outbox(&self, after: Option<OutboxId>, rows_max: usize) -> Result<Vec<OutboxRow>, JournalError> {
        self.shared().journal.outbox(after, rows_max)
    }

    /// Notes that an event of this topic with this id comes from a row of the outbox: the record that holds the event
    /// deletes the row. To be called before the event is published.
    pub fn expect_from_outbox(&self, topic: TopicKey, event: EventId, row: OutboxId) {
        self.shared().publishing.rows.lock().insert((topic, event), row);
    }

    /// Ends what [`JournalStore::expect_from_outbox`] began, when the publish was answered.
    pub fn forget_from_outbox(&self, topic: &TopicKey, event: &EventId) {
        self.shared().publishing.rows.lock().remove(&(topic.clone(), event.clone()));
    }

    /// Deletes rows whose events the store has already.
    pub fn delete_from_outbox(&self, ids: &[OutboxId]) -> Result<(), JournalError> {
        self.shared().journal.delete_outbox(ids)
    }

    /// Moves rows that can never be published to where people find them, with the reason.
    pub fn refuse_from_outbox(&self, refused: &[OutboxRefusal]) -> Result<(), JournalError> {
        self.shared().journal.refuse_outbox(refused)
    }
}
