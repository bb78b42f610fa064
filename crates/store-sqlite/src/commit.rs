//! A commit: batches checked and resolved in order, then their events inserted stream by stream.

use bytes::Bytes;
use millrace_model::{
    BATCH_BYTES_MAX, Batch, Check, Done, Durability, Offset, Op, Outcome, Refusal, Space, keys, lane_of,
};
use millrace_store::{StoreError, resolve};
use rusqlite::{Connection, params};

use crate::error::Attempt;
use crate::load;
use crate::row::{self, Fields};
use crate::small::{self, Looking};
use crate::stage::{Stage, Staged};
use crate::store::SqliteStore;
use crate::write::{Change, Writer};

/// What SQLite writes to the WAL beside the content: about three pages a transaction, and a row's other columns.
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
        let outcomes = self.transact(&mut writer, level, |writer| {
            self.dedupe_catch_up(writer)?;
            let appends = batches.iter().map(|batch| batch.ops.len()).sum();
            let mut stage = Stage::new(appends, self.options.dedupe_window_ms_max);
            let outcomes: Attempt<Vec<Outcome>> =
                batches.iter().map(|batch| self.resolve(writer, &mut stage, batch)).collect();
            let change = self.insert(writer, stage, &mut remembered)?;
            Ok((outcomes?, change))
        })?;
        keep_last_of_each(&mut remembered);
        for (_, hash, seq) in remembered {
            writer.dedupe.remember(hash, seq);
        }
        writer.dedupe.next_seq = self.index().next_seq;
        writer.wal_bytes += WAL_BYTES_PER_COMMIT;
        self.upkeep_after_commit(&mut writer)?;
        Ok(outcomes)
    }

    /// Checks first, so that a refused batch has nothing to undo.
    fn resolve<'a>(&self, writer: &mut Writer, stage: &mut Stage<'a>, batch: &'a Batch) -> Attempt<Outcome> {
        for (at, check) in batch.checks.iter().enumerate() {
            if let Some(found) = failing(&writer.conn, check)? {
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
                Op::Put { .. } | Op::PutNew { .. } | Op::Delete { .. } => small::write(writer, op)?,
                Op::Claim(claim) => {
                    let look = &mut Looking { store: self, writer, stage };
                    let taken = resolve::claim(look, batch.now, claim)?;
                    write_all(writer, &taken.ops)?;
                    done.claimed.extend(taken.claimed);
                    done.more |= taken.more;
                }
                Op::Reconcile(reconcile) => {
                    let look = &mut Looking { store: self, writer, stage };
                    let reconciled = resolve::reconcile(look, batch.now, reconcile)?;
                    write_all(writer, &reconciled.ops)?;
                    done.state = reconciled.commit.or(done.state);
                }
                Op::Trim { stream, start } => stage.trim(self, stream, start.0),
                Op::Remove { stream, offsets, compacted_to } => {
                    self.remove(writer, stage, stream, offsets, compacted_to.0)?;
                }
                Op::Drop { topic } => {
                    let ops = resolve::forget_topic(&mut Looking { store: self, writer, stage }, topic)?;
                    write_all(writer, &ops)?;
                    stage.drop_topic(self, topic, batch.now.0);
                }
            }
        }
        Ok(Outcome::Done(done))
    }

    /// `remembered` receives ordinal, hash and place of every brought id.
    fn insert(
        &self,
        writer: &mut Writer,
        mut stage: Stage<'_>,
        remembered: &mut Vec<(usize, u64, u64)>,
    ) -> Attempt<Change> {
        let Writer { conn, scratch, wal_bytes, .. } = writer;
        let mut change = Change::default();
        for staged in &mut stage.streams {
            write_stream(conn, staged, &mut change)?;
        }
        if stage.streams.len() > 1 {
            // Stable: within a stream the order of operations stays. Its events become one run.
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
            Fields {
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
                small::put(conn, Space::OffPriority, &key, value.as_bytes())?;
            }
            remembered.extend(entry.hash.map(|hash| (entry.ordinal, hash, seq)));
            seq += 1;
        }
        for staged in stage.streams.iter().filter(|staged| !staged.row.dropped && staged.run.count > 0) {
            *wal_bytes += staged.run.bytes + staged.run.count * WAL_BYTES_PER_EVENT;
            change.record.runs.push((staged.row.id, staged.run));
        }
        Ok(change)
    }
}

fn write_all(writer: &mut Writer, ops: &[Op]) -> Attempt<()> {
    ops.iter().try_for_each(|op| small::write(writer, op))
}

/// Of events with one id the last one counts, in order of operations; the places themselves must come in order.
fn keep_last_of_each(remembered: &mut Vec<(usize, u64, u64)>) {
    remembered.sort_unstable_by_key(|(ordinal, hash, _)| (*hash, std::cmp::Reverse(*ordinal)));
    remembered.dedup_by_key(|(_, hash, _)| *hash);
    remembered.sort_unstable_by_key(|(_, _, seq)| *seq);
}

/// A stream that this commit both creates and drops leaves no trace.
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
        // Its checksum covers the number it has just got.
        load::update_stream(conn, row)?;
    } else if staged.row_changed {
        load::update_stream(conn, row)?;
    } else {
        return Ok(());
    }
    change.touch(row.clone());
    Ok(())
}

/// What a failing check found; `None` when it holds.
fn failing(conn: &Connection, check: &Check) -> Attempt<Option<Option<Bytes>>> {
    let (found, holds) = match check {
        Check::Absent { space, key } => {
            let found = small::get(conn, *space, key)?;
            let holds = found.is_none();
            (found, holds)
        }
        Check::Present { space, key } => {
            let found = small::get(conn, *space, key)?;
            let holds = found.is_some();
            (found, holds)
        }
        Check::Equals { space, key, value } => {
            let found = small::get(conn, *space, key)?;
            let holds = found.as_ref() == Some(value);
            (found, holds)
        }
    };
    Ok((!holds).then_some(found))
}

/// Housekeeping is as durable as it gets without waiting: losing its tail loses nothing that was confirmed.
pub(crate) const HOUSEKEEPING: Durability = Durability::Os;
