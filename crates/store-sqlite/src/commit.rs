//! A commit: batches checked and resolved in order, then their events inserted stream by stream.

use bytes::Bytes;
use millrace_model::{Appended, BATCH_BYTES_MAX, Batch, Check, Durability, Op, Outcome, Refusal, Space};
use millrace_store::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Attempt;
use crate::load;
use crate::row::{self, Fields};
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
        let mut appended: Vec<Appended> = Vec::with_capacity(batch.ops.len());
        for op in &batch.ops {
            match op {
                Op::Append(append) => {
                    let ordinal = appended.len() as u32;
                    appended.push(stage.append(self, writer, batch, append, ordinal)?);
                }
                Op::Put { space, key, value } => {
                    put(&writer.conn, *space, key, value)?;
                    writer.wal_bytes += (key.len() + value.len()) as u64;
                }
                Op::Delete { space, key } => delete(&writer.conn, *space, key)?,
                Op::Trim { stream, start } => stage.trim(self, stream, start.0),
                Op::Remove { stream, offsets, compacted_to } => {
                    self.remove(writer, stage, stream, offsets, compacted_to.0)?;
                }
                Op::Drop { topic } => stage.drop_topic(self, topic),
            }
        }
        Ok(Outcome::Done(appended))
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
            let found = get(conn, *space, key)?;
            let holds = found.is_none();
            (found, holds)
        }
        Check::Present { space, key } => {
            let found = get(conn, *space, key)?;
            let holds = found.is_some();
            (found, holds)
        }
        Check::Equals { space, key, value } => {
            let found = get(conn, *space, key)?;
            let holds = found.as_ref() == Some(value);
            (found, holds)
        }
    };
    Ok((!holds).then_some(found))
}

fn get(conn: &Connection, space: Space, key: &str) -> Attempt<Option<Bytes>> {
    let mut select = conn.prepare_cached(&format!("SELECT value FROM {} WHERE key = ?1", space.as_str()))?;
    Ok(select.query_row([key], |row| row.get::<_, Vec<u8>>(0)).optional()?.map(Bytes::from))
}

fn put(conn: &Connection, space: Space, key: &str, value: &Bytes) -> Attempt<()> {
    let table = space.as_str();
    conn.prepare_cached(&format!(
        "INSERT INTO {table} (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    ))?
    .execute(params![key, value.as_ref()])?;
    Ok(())
}

fn delete(conn: &Connection, space: Space, key: &str) -> Attempt<()> {
    conn.prepare_cached(&format!("DELETE FROM {} WHERE key = ?1", space.as_str()))?.execute([key])?;
    Ok(())
}

/// Housekeeping is as durable as it gets without waiting: losing its tail loses nothing that was confirmed.
pub(crate) const HOUSEKEEPING: Durability = Durability::Os;
