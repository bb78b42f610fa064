//! A commit: checks and resolves the batches in order, then inserts their events stream by stream.

use millrace_model::{BATCH_BYTES_MAX, Batch, Done, Durability, Offset, Op, Outcome, Space, keys, lane_of};
use millrace_resolve as resolve;
use millrace_store::{RecordedChange, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Attempt, SqliteFault};
use crate::opening::load;
use crate::reading::index::StreamRow;
use crate::rows::row::{self, RowFields};
use crate::rows::tables::{self, SqliteTxView};
use crate::store_core::StoreCore;
use crate::writing::front::record_event;
use crate::writing::plain;
use crate::writing::stage::{CommitStage, Staged, content_bytes};
use crate::writing::transaction::{Change, Writer};

/// An estimate of what SQLite writes to the WAL beside the content: about three pages per transaction, and a row's
/// other columns.
const WAL_BYTES_PER_COMMIT: u64 = 3 * 4096;
const WAL_BYTES_PER_EVENT: u64 = 100;

impl StoreCore {
    pub(crate) fn commit_batches(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        refuse_too_large(batches)?;
        let Some(level) = batches.iter().map(|batch| batch.durability).max() else { return Ok(Vec::new()) };
        let mut writer = self.writer();
        let (outcomes, inserted) =
            self.transact(&mut writer, level, |writer| self.write_batches(writer, batches))?;
        #[cfg(test)]
        {
            // Taken out first: the lock must not be held while the hook runs.
            let meanwhile = self.after_turn.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
        }
        self.after_commit(&mut writer, inserted)?;
        Ok(outcomes)
    }

    /// Resolves the batches and writes their changes inside a transaction.
    pub(crate) fn write_batches(
        &self,
        writer: &mut Writer,
        batches: &[Batch],
    ) -> Attempt<((Vec<Outcome>, Inserted), Change)> {
        self.dedupe_catch_up(writer)?;
        let appends = batches.iter().map(|batch| batch.ops.len()).sum();
        let mut stage = CommitStage::new(appends, self.options.dedupe_window_ms_max);
        let outcomes: Attempt<Vec<Outcome>> =
            batches.iter().map(|batch| self.check_and_stage(writer, &mut stage, batch)).collect();
        let (inserted, change) = self.insert(writer, stage)?;
        Ok(((outcomes?, inserted), change))
    }

    /// Remembers the ids of a transaction that is committed, and does upkeep that cannot wait.
    pub(crate) fn after_commit(&self, writer: &mut Writer, inserted: Inserted) -> Result<(), StoreError> {
        let Inserted { mut remembered, next_seq } = inserted;
        keep_last_of_each(&mut remembered);
        let mut dedupe = self.dedupe();
        for (_, hash, seq) in remembered {
            dedupe.remember(hash, seq);
        }
        // Not `next_seq` of the index: since the write lock was released, readers may have added commits of other
        // processes to the index, whose ids are not read yet.
        dedupe.next_seq = next_seq;
        drop(dedupe);
        writer.wal_bytes += WAL_BYTES_PER_COMMIT;
        match self.upkeep_after_commit(writer) {
            // The batches are durable. Upkeep that found no room is due again with the next commit, and `maintain`
            // reports it.
            Err(error) if !error.wrote_nothing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs all checks of the batch before its operations, so that a refused batch has nothing to undo.
    fn check_and_stage<'a>(
        &self,
        writer: &mut Writer,
        stage: &mut CommitStage<'a>,
        batch: &'a Batch,
    ) -> Attempt<Outcome> {
        if let Some(refusal) = plain::refusal(self, writer, stage, batch)? {
            return Ok(Outcome::Refused(refusal));
        }
        let mut done = Done::default();
        for op in &batch.ops {
            match op {
                Op::Append(_) | Op::Delay(_) | Op::Put { .. } | Op::PutNew { .. } | Op::Delete { .. } => {
                    plain::apply(self, writer, stage, batch, op, &mut done)?;
                }
                Op::Claim(claim) => {
                    let look = &mut SqliteTxView { store: self, writer, stage };
                    let taken = resolve::claim(look, batch.now, claim)?;
                    write_all(writer, &taken.ops)?;
                    done.claimed.extend(taken.claimed);
                    done.more |= taken.more;
                }
                Op::Reconcile(reconcile) => {
                    let look = &mut SqliteTxView { store: self, writer, stage };
                    let reconciled = resolve::reconcile(look, batch.now, reconcile)?;
                    write_all(writer, &reconciled.ops)?;
                    done.state = reconciled.commit.or(done.state);
                }
                Op::Trim { stream, start } => stage.trim(self, stream, start.0),
                Op::Remove { stream, offsets, compacted_to } => {
                    self.remove(writer, stage, stream, offsets, compacted_to.0)?;
                }
                Op::Drop { topic } => {
                    let ops = resolve::forget_topic(&mut SqliteTxView { store: self, writer, stage }, topic)?;
                    write_all(writer, &ops)?;
                    stage.drop_topic(self, topic, batch.now.0);
                    if let Some(recording) = &mut writer.recording {
                        recording.push(RecordedChange::Drop { topic: topic.clone(), at: batch.now });
                    }
                }
            }
        }
        Ok(Outcome::Done(done))
    }

    /// Inserts the staged events, and records them and the starts that have moved.
    pub(crate) fn insert(
        &self,
        writer: &mut Writer,
        mut stage: CommitStage<'_>,
    ) -> Attempt<(Inserted, Change)> {
        let Writer { conn, scratch, wal_bytes, recording, .. } = writer;
        let mut change = Change::default();
        change.record.delayed = stage.delayed;
        for staged in &mut stage.streams {
            write_stream(conn, staged, &mut change)?;
        }
        if stage.streams.len() > 1 {
            // A stable sort keeps the order of operations within a stream. The events of a stream become one run per
            // record, so that every copy of a journal gives them the same seqs.
            stage.entries.sort_by_key(|entry| (entry.record, entry.staged));
        }
        let mut remembered = Vec::new();
        let mut seq = self.index().next_seq;
        let mut insert = conn.prepare_cached(row::INSERT)?;
        for entry in &stage.entries {
            let staged = &stage.streams[entry.staged];
            if staged.row.dropped {
                continue;
            }
            RowFields {
                seq,
                stream: staged.row.id,
                offset: entry.offset,
                ts: entry.ts,
                id: &entry.id,
                brought: entry.hash.is_some(),
                body: entry.body,
            }
            .insert(&mut insert, scratch)?;
            if let Some(lane) = lane_of(entry.body.priority) {
                let key =
                    keys::off_priority(&staged.row.stream, staged.row.id as u64, lane, Offset(entry.offset));
                let value = entry.ts.to_string();
                *wal_bytes += (key.len() + value.len()) as u64;
                tables::put(conn, Space::OffPriority, &key, value.as_bytes())?;
            }
            let bytes = content_bytes(entry.body);
            *wal_bytes += bytes + WAL_BYTES_PER_EVENT;
            change.add(staged.row.id, seq, entry, bytes);
            if let Some(recording) = recording {
                record_event(recording, &staged.row, entry);
            }
            remembered.extend(entry.hash.map(|hash| (entry.ordinal, hash, seq)));
            seq += 1;
        }
        if let Some(recording) = recording {
            let live = stage.streams.iter().filter(|staged| !staged.row.dropped);
            recording.extend(live.filter(|staged| staged.row.start > staged.start_before).map(|staged| {
                let (stream, number) = (staged.row.stream.clone(), staged.row.id as u64);
                RecordedChange::Start { stream, number, start: Offset(staged.row.start) }
            }));
        }
        Ok((Inserted { remembered, next_seq: seq }, change))
    }
}

/// The effects of [`StoreCore::insert`] on the ids in memory.
pub(crate) struct Inserted {
    /// Ordinal, hash and seq of every id that a client brought.
    remembered: Vec<(usize, u64, u64)>,
    /// The seq of the next event.
    next_seq: u64,
}

pub(crate) fn refuse_too_large(batches: &[Batch]) -> Result<(), StoreError> {
    let max = BATCH_BYTES_MAX;
    match batches.iter().map(Batch::bytes).find(|bytes| *bytes > max) {
        Some(bytes) => Err(StoreError::TooLarge { bytes, max }),
        None => Ok(()),
    }
}

fn write_all(writer: &mut Writer, ops: &[Op]) -> Attempt<()> {
    ops.iter().try_for_each(|op| tables::write(writer, op))
}

/// Keeps of events with the same id the last one in order of operations. Returns with `remembered` in order of seq.
fn keep_last_of_each(remembered: &mut Vec<(usize, u64, u64)>) {
    remembered.sort_unstable_by_key(|(ordinal, hash, _)| (*hash, std::cmp::Reverse(*ordinal)));
    remembered.dedup_by_key(|(_, hash, _)| *hash);
    remembered.sort_unstable_by_key(|(_, _, seq)| *seq);
}

/// Writes the row of a stream. A stream that this commit both creates and drops leaves no trace.
fn write_stream(conn: &Connection, staged: &mut Staged, change: &mut Change) -> Attempt<()> {
    let row = &mut staged.row;
    if row.id == 0 {
        if row.dropped {
            return Ok(());
        }
        if let Some(number) = staged.number {
            refuse_used_number(conn, row, number)?;
        }
        conn.prepare_cached(
            "INSERT INTO streams (id, topic, partition, start, folded, reclaimed, bytes, last_ts, dropped) \
             VALUES (?1, ?2, ?3, ?4, 1, 1, 0, 0, 0)",
        )?
        .execute(params![
            staged.number,
            row.stream.topic.as_str(),
            row.stream.partition.0,
            row.start as i64
        ])?;
        row.id = conn.last_insert_rowid();
        // The row's checksum covers the id that it has just got.
        load::update_stream(conn, row)?;
    } else if staged.row_changed {
        load::update_stream(conn, row)?;
    } else {
        return Ok(());
    }
    change.touch(row.clone());
    Ok(())
}

/// Refuses the number of a new stream in a record if this copy has given it to another stream already.
fn refuse_used_number(conn: &Connection, row: &StreamRow, number: i64) -> Attempt<()> {
    let used: Option<i64> = conn
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'streams'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    match used {
        Some(used) if number <= used => Err(SqliteFault::Mismatch(format!(
            "{} is a new stream with number {number}, but {used} numbers are given here",
            row.stream
        ))),
        _ => Ok(()),
    }
}

/// Housekeeping is written without waiting for a sync: losing the end of it loses nothing that was confirmed.
pub(crate) const HOUSEKEEPING: Durability = Durability::Os;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_conformance::build::{DAY_MS, append_id, batch, stream};
    use millrace_store::Store;

    use super::*;
    use crate::{SqliteOptions, SqliteStore};

    /// The other handle commits right behind ours, and a reader adds that to our index before we remember our own ids.
    #[test]
    fn ids_that_another_handle_brings_right_behind_a_commit_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let open = || Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let (one, other) = (open(), open());
        let bring = |id: &str| [batch(1, vec![append_id(&stream("t", 0), id, "x", DAY_MS)])];
        let (reader, theirs) = (one.clone(), bring("theirs"));
        *one.core.after_turn.lock() = Some(Box::new(move || {
            other.commit(&theirs).unwrap();
            assert_eq!(reader.streams().unwrap()[0].next, Offset(3), "our index knows of it");
        }));
        one.commit(&bring("ours")).unwrap();
        for id in ["ours", "theirs"] {
            let outcomes = one.commit(&bring(id)).unwrap();
            assert!(
                matches!(&outcomes[0], Outcome::Done(done) if done.appended[0].duplicate),
                "{id}: {outcomes:?}"
            );
        }
    }
}
