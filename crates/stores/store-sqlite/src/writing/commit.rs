//! A commit: checks and resolves the batches in order, then inserts their events stream by stream.

use bytes::Bytes;
use millrace_model::{
    BATCH_BYTES_MAX, Batch, Check, Done, Durability, Offset, Op, Outcome, Refusal, Space, TopicRow, keys,
    lane_of,
};
use millrace_resolve as resolve;
use millrace_store::StoreError;
use rusqlite::{Connection, params};

use crate::error::Attempt;
use crate::opening::load;
use crate::rows::row::{self, RowFields};
use crate::rows::tables::{self, SqliteTxView};
use crate::store::SqliteStore;
use crate::writing::stage::{CommitStage, Staged};
use crate::writing::transaction::{Change, Writer};

/// An estimate of what SQLite writes to the WAL beside the content: about three pages per transaction, and a row's
/// other columns.
const WAL_BYTES_PER_COMMIT: u64 = 3 * 4096;
const WAL_BYTES_PER_EVENT: u64 = 100;

impl SqliteStore {
    pub(crate) fn commit_batches(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        for batch in batches {
            let bytes = batch.bytes();
            if bytes > BATCH_BYTES_MAX {
                return Err(StoreError::TooLarge { bytes, max: BATCH_BYTES_MAX });
            }
        }
        let Some(level) = batches.iter().map(|batch| batch.durability).max() else { return Ok(Vec::new()) };
        let mut writer = self.writer();
        let mut remembered = Vec::new();
        let (outcomes, next_seq) = self.transact(&mut writer, level, |writer| {
            self.dedupe_catch_up(writer)?;
            let appends = batches.iter().map(|batch| batch.ops.len()).sum();
            let mut stage = CommitStage::new(appends, self.options.dedupe_window_ms_max);
            let outcomes: Attempt<Vec<Outcome>> =
                batches.iter().map(|batch| self.check_and_stage(writer, &mut stage, batch)).collect();
            let (change, next_seq) = self.insert(writer, stage, &mut remembered)?;
            Ok(((outcomes?, next_seq), change))
        })?;
        #[cfg(test)]
        {
            // Taken out first: the lock must not be held while the hook runs.
            let meanwhile = self.after_turn.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
        }
        keep_last_of_each(&mut remembered);
        for (_, hash, seq) in remembered {
            writer.dedupe.remember(hash, seq);
        }
        // Not `next_seq` of the index: since the write lock was released, readers may have added commits of other
        // processes to the index, whose ids are not read yet.
        writer.dedupe.next_seq = next_seq;
        writer.wal_bytes += WAL_BYTES_PER_COMMIT;
        match self.upkeep_after_commit(&mut writer) {
            // The batches are durable. Upkeep that found no room is due again with the next commit, and `maintain`
            // reports it.
            Err(error) if !error.wrote_nothing() => Err(error),
            _ => Ok(outcomes),
        }
    }

    /// Runs all checks of the batch before its operations, so that a refused batch has nothing to undo.
    fn check_and_stage<'a>(
        &self,
        writer: &mut Writer,
        stage: &mut CommitStage<'a>,
        batch: &'a Batch,
    ) -> Attempt<Outcome> {
        for (at, check) in batch.checks.iter().enumerate() {
            let failed = match check {
                Check::IdTaken(id) => (!stage.is_taken(self, writer, batch.now, id)?).then_some(None),
                Check::Absent { .. }
                | Check::Present { .. }
                | Check::Equals { .. }
                | Check::Incarnation { .. } => failing(&writer.conn, check)?,
            };
            if let Some(found) = failed {
                return Ok(Outcome::Refused(Refusal { check: at, found }));
            }
        }
        let mut done = Done::default();
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let ordinal = done.appended.len() as u32;
                    done.appended.push(stage.append(self, writer, batch, append, ordinal)?);
                }
                Op::Delay(delay) => done.appended.push(stage.delay(self, writer, batch.now, delay)?),
                Op::Put { space: Space::Topics, key, value } => {
                    done.incarnation_kept |= put_topic(writer, key, value)?;
                }
                Op::Put { .. } | Op::PutNew { .. } | Op::Delete { .. } => tables::write(writer, op)?,
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
                }
            }
        }
        Ok(Outcome::Done(done))
    }

    /// Inserts the staged events. Adds ordinal, hash and seq of every id that a client brought to `remembered`. Also
    /// returns the seq of the next event.
    fn insert(
        &self,
        writer: &mut Writer,
        mut stage: CommitStage<'_>,
        remembered: &mut Vec<(usize, u64, u64)>,
    ) -> Attempt<(Change, u64)> {
        let Writer { conn, scratch, wal_bytes, .. } = writer;
        let mut change = Change::default();
        change.record.delayed = stage.delayed;
        for staged in &mut stage.streams {
            write_stream(conn, staged, &mut change)?;
        }
        if stage.streams.len() > 1 {
            // A stable sort keeps the order of operations within a stream. The events of a stream become one run.
            stage.entries.sort_by_key(|entry| entry.staged);
        }
        let mut seq = self.index().next_seq;
        let mut insert = conn.prepare_cached(row::INSERT)?;
        for entry in &stage.entries {
            let staged = &mut stage.streams[entry.staged];
            if staged.row.dropped {
                continue;
            }
            if entry.offset == staged.run.offset {
                staged.run.seq = seq;
            }
            RowFields {
                seq,
                stream: staged.row.id,
                offset: entry.offset,
                ts: entry.ts,
                id: &entry.id,
                brought: entry.hash.is_some(),
                body: &entry.append.event.body,
            }
            .insert(&mut insert, scratch)?;
            if let Some(lane) = lane_of(entry.append.event.body.priority) {
                let key =
                    keys::off_priority(&staged.row.stream, staged.row.id as u64, lane, Offset(entry.offset));
                let value = entry.ts.to_string();
                *wal_bytes += (key.len() + value.len()) as u64;
                tables::put(conn, Space::OffPriority, &key, value.as_bytes())?;
            }
            remembered.extend(entry.hash.map(|hash| (entry.ordinal, hash, seq)));
            seq += 1;
        }
        for staged in stage.streams.iter().filter(|staged| !staged.row.dropped && staged.run.count > 0) {
            *wal_bytes += staged.run.bytes + staged.run.count * WAL_BYTES_PER_EVENT;
            change.record.runs.push((staged.row.id, staged.run));
        }
        Ok((change, seq))
    }
}

/// Writes the row of a topic. Returns whether a stored row had another incarnation, which is then kept.
fn put_topic(writer: &mut Writer, key: &str, value: &Bytes) -> Attempt<bool> {
    let standing = tables::get(&writer.conn, Space::Topics, key)?;
    let kept = standing.and_then(|row| resolve::keep_incarnation(key, &row, value));
    let (is_kept, value) = (kept.is_some(), kept.unwrap_or_else(|| value.clone()));
    tables::write(writer, &Op::Put { space: Space::Topics, key: key.to_owned(), value })?;
    Ok(is_kept)
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
        conn.prepare_cached(
            "INSERT INTO streams (topic, partition, start, folded, reclaimed, bytes, last_ts, dropped) \
             VALUES (?1, ?2, ?3, 1, 1, 0, 0, 0)",
        )?
        .execute(params![row.stream.topic.as_str(), row.stream.partition.0, row.start as i64])?;
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

/// Returns what a failing check found; `None` when the check holds.
fn failing(conn: &Connection, check: &Check) -> Attempt<Option<Option<Bytes>>> {
    let (found, holds) = match check {
        Check::Absent { space, key } => {
            let found = tables::get(conn, *space, key)?;
            let holds = found.is_none();
            (found, holds)
        }
        Check::Present { space, key } => {
            let found = tables::get(conn, *space, key)?;
            let holds = found.is_some();
            (found, holds)
        }
        Check::Equals { space, key, value } => {
            let found = tables::get(conn, *space, key)?;
            let holds = found.as_ref() == Some(value);
            (found, holds)
        }
        Check::Incarnation { topic, incarnation } => {
            let found = tables::get(conn, Space::Topics, &keys::topic(topic))?;
            let holds = found.as_ref().and_then(|row| TopicRow::incarnation_of(row)) == Some(*incarnation);
            (found, holds)
        }
        // Not a check of a row: `resolve` looks the id up.
        Check::IdTaken(_) => (None, false),
    };
    Ok((!holds).then_some(found))
}

/// Housekeeping is written without waiting for a sync: losing the end of it loses nothing that was confirmed.
pub(crate) const HOUSEKEEPING: Durability = Durability::Os;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_conformance::build::{DAY_MS, append_id, batch, stream};
    use millrace_store::Store;

    use super::*;
    use crate::SqliteOptions;

    /// The other handle commits right behind ours, and a reader adds that to our index before we remember our own ids.
    #[test]
    fn ids_that_another_handle_brings_right_behind_a_commit_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let open = || Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
        let (one, other) = (open(), open());
        let bring = |id: &str| [batch(1, vec![append_id(&stream("t", 0), id, "x", DAY_MS)])];
        let (reader, theirs) = (one.clone(), bring("theirs"));
        *one.after_turn.lock() = Some(Box::new(move || {
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
