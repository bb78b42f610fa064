//! Commits of plain batches without a transaction: resolved in memory, made durable in a journal, and written to the
//! tables later (`settle.rs`).
//!
//! A commit sees the tables, and in front of them every commit that is not settled.

use bytes::Bytes;
use millrace_model::{
    Batch, Done, EventId, Offset, Op, Outcome, Partition, Space, Stream, Timestamp, TopicKey,
};
use millrace_store::{FoldRecord, Placement, RecordedChange, RecordedEvent};
use rusqlite::{Connection, OptionalExtension};

use crate::error::Attempt;
use crate::reading::index::StreamRow;
use crate::rows::tables::{self, Damaged};
use crate::store_core::StoreCore;
use crate::writing::plain;
use crate::writing::stage::{CommitStage, Staged, StagedEvent};
use crate::writing::target::CommitTarget;
use crate::writing::unsettled::RowChanges;

/// The part of a handle that the commit under way uses alone.
#[derive(Debug)]
pub(crate) struct Front {
    /// Reads the tables beside a transaction that settles.
    lookups: Connection,
    damaged: Damaged,
}

impl Front {
    pub(crate) fn new(lookups: Connection, damaged: Damaged) -> Front {
        Front { lookups, damaged }
    }
}

/// The end of a commit in front of the tables.
pub(crate) enum FrontCommit {
    Committed(Vec<Outcome>),
    NotPlaced,
}

impl StoreCore {
    /// Returns whether the batches can be committed in front of the tables. A store whose file may not grow must know
    /// before it answers whether there is room: what waits to be settled could not be trimmed.
    pub(crate) fn may_defer(&self, batches: &[Batch]) -> bool {
        self.options.file_bytes_max.is_none() && plain::are_plain(batches)
    }

    /// Resolves plain batches, and calls `place` with their changes, which makes them durable.
    pub(crate) fn commit_front(
        &self,
        front: &Front,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Attempt<FrontCommit> {
        let appends = batches.iter().map(|batch| batch.ops.len()).sum();
        let mut stage = CommitStage::new(appends, self.options.dedupe_window_ms_max);
        let mut target = FrontTarget { store: self, front, rows: RowChanges::default(), changes: Vec::new() };
        let outcomes: Attempt<Vec<Outcome>> =
            batches.iter().map(|batch| self.stage_plain(&mut target, &mut stage, batch)).collect();
        let outcomes = outcomes?;
        let mut changes = target.changes;
        self.number_new_streams(front, &mut stage)?;
        record_events(&mut changes, stage);
        match place(&changes) {
            Placement::Placed(position) => {
                self.defer(FoldRecord { position, changes });
                Ok(FrontCommit::Committed(outcomes))
            }
            Placement::NothingToPlace => Ok(FrontCommit::Committed(outcomes)),
            Placement::NotPlaced => Ok(FrontCommit::NotPlaced),
        }
    }

    fn stage_plain<'a>(
        &self,
        target: &mut FrontTarget<'_>,
        stage: &mut CommitStage<'a>,
        batch: &'a Batch,
    ) -> Attempt<Outcome> {
        if let Some(refusal) = plain::refusal(self, target, stage, batch)? {
            return Ok(Outcome::Refused(refusal));
        }
        let mut done = Done::default();
        for op in &batch.ops {
            plain::apply(self, target, stage, batch, op, &mut done)?;
        }
        Ok(Outcome::Done(done))
    }

    /// Gives new streams the numbers that SQLite would give them.
    fn number_new_streams(&self, front: &Front, stage: &mut CommitStage<'_>) -> Attempt<()> {
        if stage.streams.iter().all(|staged| staged.row.id != 0) {
            return Ok(());
        }
        // Read before the tables: a stream that is settled meanwhile is found there.
        let unsettled = self.unsettled.lock().last_number() as i64;
        #[cfg(test)]
        {
            let meanwhile = self.between_looks.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
        }
        let mut select =
            front.lookups.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'streams'")?;
        let stored: Option<i64> = select.query_row([], |row| row.get(0)).optional()?;
        let mut last = stored.unwrap_or(0).max(unsettled);
        for staged in stage.streams.iter_mut().filter(|staged| staged.row.id == 0) {
            last += 1;
            staged.row.id = last;
        }
        Ok(())
    }

    /// Keeps a durable commit in memory until it is settled.
    fn defer(&self, record: FoldRecord) {
        let (size, is_first) = self.unsettled.lock().add(record, self.hash_key);
        self.settle_signal.deferred(size, is_first, &self.options);
    }
}

/// Turns the staged events into changes, stream by stream.
fn record_events(changes: &mut Vec<RecordedChange>, stage: CommitStage<'_>) {
    let CommitStage { streams, mut entries, .. } = stage;
    if streams.len() > 1 {
        // A stable sort keeps the order of operations within a stream.
        entries.sort_by_key(|entry| entry.staged);
    }
    for entry in entries {
        record_event(changes, &streams[entry.staged].row, &entry);
    }
}

/// Records an event behind the last one, which is of the same stream or of the stream before it.
pub(crate) fn record_event(changes: &mut Vec<RecordedChange>, row: &StreamRow, entry: &StagedEvent<'_>) {
    let event = RecordedEvent {
        offset: Offset(entry.offset),
        ts: Timestamp(entry.ts),
        id: entry.id.clone(),
        is_brought: entry.hash.is_some(),
        body: entry.body.clone(),
    };
    match changes.last_mut() {
        Some(RecordedChange::Append { number, events, .. }) if *number == row.id as u64 => events.push(event),
        _ => changes.push(RecordedChange::Append {
            stream: row.stream.clone(),
            number: row.id as u64,
            events: vec![event],
        }),
    }
}

/// The tables and everything in front of them.
struct FrontTarget<'a> {
    store: &'a StoreCore,
    front: &'a Front,
    /// Rows that this commit has changed so far.
    rows: RowChanges,
    changes: Vec<RecordedChange>,
}

impl FrontTarget<'_> {
    fn put(&mut self, space: Space, key: &str, value: &Bytes) {
        self.rows.set(space, key, Some(value.clone()));
        self.changes.push(RecordedChange::Put { space, key: key.to_owned(), value: value.clone() });
    }
}

impl CommitTarget for FrontTarget<'_> {
    fn row(&self, space: Space, key: &str) -> Attempt<Option<Bytes>> {
        if let Some(own) = self.rows.get(space, key) {
            return Ok(own);
        }
        // In a statement of its own: the lock must not be held while the tables are read.
        let unsettled = self.store.unsettled.lock().row(space, key);
        match unsettled {
            Some(row) => Ok(row),
            None => tables::get(&self.front.lookups, space, key, self.front.damaged),
        }
    }

    /// Rows that were deleted and not settled may be counted: callers only save lookups by this.
    fn has_rows(&self, space: Space) -> Attempt<bool> {
        if self.rows.touches(space) || self.store.unsettled.lock().touches(space) {
            return Ok(true);
        }
        tables::any(&self.front.lookups, space)
    }

    fn write(&mut self, op: &Op) -> Attempt<()> {
        match op {
            Op::Put { space, key, value } => self.put(*space, key, value),
            Op::PutNew { space, key, value } if self.row(*space, key)?.is_none() => {
                self.put(*space, key, value);
            }
            Op::Delete { space, key } if self.row(*space, key)?.is_some() => {
                self.rows.set(*space, key, None);
                self.changes.push(RecordedChange::Delete { space: *space, key: key.clone() });
            }
            _ => {}
        }
        Ok(())
    }

    fn unsettled_stream(&self, stream: &Stream) -> Option<Staged> {
        let end = self.store.unsettled.lock().stream(stream)?;
        let index = self.store.index();
        let stored = index.get(stream).map(|state| state.row.clone());
        let row = stored.unwrap_or_else(|| StreamRow::new(end.number as i64, stream.clone()));
        Some(Staged::new(row, end.next, end.last_ts))
    }

    fn unsettled_event(&self, hash: u64, topic: &TopicKey, id: &EventId) -> Option<(Partition, u64, u64)> {
        self.store.unsettled.lock().event(hash, topic, id, self.store.options.dedupe_ids_max)
    }

    fn unsettled_ids(&self) -> usize {
        self.store.unsettled.lock().ids_brought()
    }

    fn lookups(&self) -> &Connection {
        &self.front.lookups
    }

    fn damaged(&self) -> Damaged {
        self.front.damaged
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_conformance::build::{append, batch, stream};
    use millrace_store::{CommitVia, CopyPosition, Foldable, Store, Tip};

    use super::*;
    use crate::{SqliteOptions, SqliteStore};

    /// A stream gets into the tables between the two looks of the next commit, which must not give its number again.
    #[test]
    fn a_new_stream_that_is_settled_meanwhile_keeps_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions { is_copy: true, settle_ms: 3_600_000, ..SqliteOptions::default() };
        let copy = Arc::new(SqliteStore::open(&folder.path().join("copy.db"), options).unwrap());
        copy.set_position(&CopyPosition::start(1)).unwrap();
        let mut numbers = Vec::new();
        for n in 1..=3 {
            let settling = copy.clone();
            *copy.core.between_looks.lock() = Some(Box::new(move || settling.settle().unwrap()));
            let name = stream(&format!("t{n}"), 0);
            let via = copy.commit_via(&[batch(1, vec![append(&name, "x")])], &mut |changes: &[_]| {
                numbers.extend(changes.iter().filter_map(|change| match change {
                    RecordedChange::Append { number, .. } => Some(*number),
                    _ => None,
                }));
                Placement::Placed(CopyPosition { store_id: 1, n, tip: Tip::START })
            });
            assert!(matches!(via, Ok(CommitVia::Committed { copied: Ok(()), .. })), "{via:?}");
        }
        assert_eq!(numbers, [1, 2, 3]);
        copy.settle().unwrap();
        assert_eq!(copy.streams().unwrap().len(), 3);
    }
}
