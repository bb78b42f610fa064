//! The small tables, and the view of a transaction under way that symbolic operations get (`TxView` of the crate
//! `resolve`).

use bytes::Bytes;
use millrace_model::{Offset, Op, Space, Stream, TopicKey};
use millrace_resolve::{StreamView, TxView};
use millrace_store::{KeyRange, Page, ReadLimit, RecordedChange, Row};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Attempt, SqliteFault};
use crate::store_core::StoreCore;
use crate::writing::stage::CommitStage;
use crate::writing::target::CommitTarget;
use crate::writing::transaction::Writer;

/// Returns the value of a row inside a transaction.
pub(crate) fn get(conn: &Connection, space: Space, key: &str, damaged: Damaged) -> Attempt<Option<Bytes>> {
    let table = space.as_str();
    let mut select = conn.prepare_cached(&format!("SELECT value, crc FROM {table} WHERE key = ?1"))?;
    let found = select.query_row([key], |row| {
        Ok((
            Bytes::from(row.get::<_, Vec<u8>>(0)?),
            is_whole(space, key, row.get_ref(0)?.as_blob()?, row.get(1)?),
        ))
    });
    match found.optional()? {
        Some((_, false)) if damaged == Damaged::Refused => {
            Err(SqliteFault::DamagedRow(table, key.to_owned()))
        }
        found => Ok(found.map(|(value, whole)| if whole { value } else { Bytes::new() })),
    }
}

/// Returns whether the table has any row.
pub(crate) fn any(conn: &Connection, space: Space) -> Attempt<bool> {
    let mut select = conn.prepare_cached(&format!("SELECT 1 FROM {} LIMIT 1", space.as_str()))?;
    Ok(select.query_row([], |_| Ok(())).optional()?.is_some())
}

/// Returns the checksum of table, key and value: a row with a changed bit, or in the wrong table, is noticed.
pub(crate) fn crc(space: Space, key: &str, value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(space.as_str().as_bytes());
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes());
    hasher.update(value);
    hasher.finalize()
}

/// Returns whether the checksum is right. A row from before there were checksums has none, and is accepted.
pub(crate) fn is_whole(space: Space, key: &str, value: &[u8], stored: Option<i64>) -> bool {
    stored.is_none_or(|stored| stored == i64::from(crc(space, key, value)))
}

pub(crate) fn put(conn: &Connection, space: Space, key: &str, value: &[u8]) -> Attempt<()> {
    let table = space.as_str();
    conn.prepare_cached(&format!(
        "INSERT INTO {table} (key, value, crc) VALUES (?1, ?2, ?3) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value, crc = excluded.crc"
    ))?
    .execute(params![key, value, crc(space, key, value)])?;
    Ok(())
}

/// Returns whether there was no such row, so that this one was written.
fn put_new(conn: &Connection, space: Space, key: &str, value: &[u8]) -> Attempt<bool> {
    let table = space.as_str();
    let written = conn
        .prepare_cached(&format!(
            "INSERT INTO {table} (key, value, crc) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING"
        ))?
        .execute(params![key, value, crc(space, key, value)])?;
    Ok(written == 1)
}

/// Returns whether there was such a row.
pub(crate) fn delete(conn: &Connection, space: Space, key: &str) -> Attempt<bool> {
    let deleted =
        conn.prepare_cached(&format!("DELETE FROM {} WHERE key = ?1", space.as_str()))?.execute([key])?;
    Ok(deleted == 1)
}

/// Applies an operation on a small table, and records what it changed.
pub(crate) fn write(writer: &mut Writer, op: &Op) -> Attempt<()> {
    let has_changed = match op {
        Op::Put { space, key, value } => {
            put(&writer.conn, *space, key, value)?;
            writer.wal_bytes += (key.len() + value.len()) as u64;
            true
        }
        Op::PutNew { space, key, value } => {
            writer.wal_bytes += (key.len() + value.len()) as u64;
            put_new(&writer.conn, *space, key, value)?
        }
        Op::Delete { space, key } => delete(&writer.conn, *space, key)?,
        _ => false,
    };
    let Some(recording) = writer.recording.as_mut().filter(|_| has_changed) else { return Ok(()) };
    match op {
        Op::Put { space, key, value } | Op::PutNew { space, key, value } => {
            recording.push(RecordedChange::Put { space: *space, key: key.clone(), value: value.clone() });
        }
        Op::Delete { space, key } => {
            recording.push(RecordedChange::Delete { space: *space, key: key.clone() });
        }
        _ => {}
    }
    Ok(())
}

/// How to treat a row that fails its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damaged {
    /// Fails with an error that names the row.
    Refused,
    /// Returns an empty value: no check equals it and no decoder accepts it, so only the operation that needs this row
    /// fails.
    Empty,
}

pub(crate) fn scan(
    conn: &Connection,
    space: Space,
    range: &KeyRange,
    rows_max: usize,
    damaged: Damaged,
) -> Attempt<Vec<Row>> {
    let table = space.as_str();
    let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
    let row = |row: &rusqlite::Row<'_>| {
        let value = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let (key, stored) = (row.get::<_, String>(0)?, row.get(2)?);
        Ok(match (is_whole(space, &key, value, stored), damaged) {
            (true, _) => Ok(Row { key, value: Bytes::copy_from_slice(value) }),
            (false, Damaged::Empty) => Ok(Row { key, value: Bytes::new() }),
            (false, Damaged::Refused) => Err(SqliteFault::DamagedRow(table, key)),
        })
    };
    let rows: rusqlite::Result<Attempt<Vec<Row>>> = match &range.to {
        Some(to) => conn
            .prepare_cached(&format!(
                "SELECT key, value, crc FROM {table} WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3"
            ))?
            .query_map(params![range.from, to, limit], row)?
            .collect(),
        None => conn
            .prepare_cached(&format!(
                "SELECT key, value, crc FROM {table} WHERE key >= ?1 ORDER BY key LIMIT ?2"
            ))?
            .query_map(params![range.from, limit], row)?
            .collect(),
    };
    rows?
}

pub(crate) fn scan_keys(
    conn: &Connection,
    space: Space,
    range: &KeyRange,
    rows_max: usize,
) -> Attempt<Vec<String>> {
    let (table, limit) = (space.as_str(), i64::try_from(rows_max).unwrap_or(i64::MAX));
    let key = |row: &rusqlite::Row<'_>| row.get(0);
    let keys: rusqlite::Result<Vec<String>> = match &range.to {
        Some(to) => conn
            .prepare_cached(&format!(
                "SELECT key FROM {table} WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3"
            ))?
            .query_map(params![range.from, to, limit], key)?
            .collect(),
        None => conn
            .prepare_cached(&format!("SELECT key FROM {table} WHERE key >= ?1 ORDER BY key LIMIT ?2"))?
            .query_map(params![range.from, limit], key)?
            .collect(),
    };
    Ok(keys?)
}

/// Reads rows inside the transaction, but events on a connection of its own, which sees what earlier commits left and
/// may meet damage without ending the transaction.
pub(crate) struct SqliteTxView<'a, 'b> {
    pub(crate) store: &'a StoreCore,
    pub(crate) writer: &'a Writer,
    pub(crate) stage: &'a CommitStage<'b>,
}

impl TxView for SqliteTxView<'_, '_> {
    type Error = SqliteFault;

    fn get(&mut self, space: Space, key: &str) -> Attempt<Option<Bytes>> {
        self.writer.row(space, key)
    }

    fn scan(&mut self, space: Space, range: &KeyRange, rows_max: usize) -> Attempt<Vec<Row>> {
        scan(&self.writer.conn, space, range, rows_max, self.writer.damaged)
    }

    fn read(&mut self, stream: &Stream, from: Offset, limit: ReadLimit) -> Attempt<Page> {
        let mut page = self.store.read_page(&self.writer.lookups, stream, from.0, limit)?;
        if let (Some(offset), Damaged::Refused) = (page.damaged.first(), self.writer.damaged) {
            return Err(SqliteFault::DamagedRow("events", format!("{stream}/{offset}")));
        }
        let id = self.store.index().get(stream).map_or(0, |state| state.row.id);
        // That connection still sees events which this commit has trimmed or removed.
        if let Some(start) = self.stage.start_of(id) {
            let removed = &self.stage.removed;
            page.events.retain(|event| event.offset.0 >= start && !removed.contains(&(id, event.offset.0)));
            page.damaged.retain(|offset| offset.0 >= start);
        }
        Ok(page)
    }

    fn streams(&mut self, topic: &TopicKey) -> Attempt<Vec<StreamView>> {
        let index = self.store.index();
        let stored = index.of_topic(topic).filter(|state| !self.stage.drops(state.row.id));
        Ok(stored
            .map(|state| {
                let start = self.stage.start_of(state.row.id).unwrap_or(state.row.start);
                StreamView {
                    stream: state.row.stream.clone(),
                    incarnation: state.row.id as u64,
                    start: Offset(start.min(state.next)),
                    next: Offset(state.next),
                }
            })
            .collect())
    }
}
