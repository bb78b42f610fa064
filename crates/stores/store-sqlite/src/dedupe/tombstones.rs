//! Ids of deleted events: compaction or retention has deleted the event, but its id stays taken as long as it is
//! remembered.
//!
//! A row in `gone_ids` takes the place of the event, under the same seq, so every hash that led to the event leads to
//! this row. Housekeeping deletes rows to which no hash leads any more after every fold, so there are hardly more rows
//! than remembered ids.

use millrace_model::EventId;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use crate::error::{Attempt, SqliteFault};
use crate::reading::index::Piece;
use crate::rows::row;

/// The part that is kept of a deleted event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) seq: u64,
    pub(crate) stream: i64,
    pub(crate) offset: u64,
    pub(crate) ts: u64,
    pub(crate) id: EventId,
}

struct Id<'a>(&'a EventId);

impl ToSql for Id<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            EventId::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            EventId::Uuid(bits) => ToSqlOutput::from(bits.to_be_bytes().to_vec()),
        })
    }
}

impl Tombstone {
    fn crc(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for number in [self.seq, self.stream as u64, self.offset, self.ts] {
            hasher.update(&number.to_le_bytes());
        }
        match &self.id {
            EventId::Text(text) => {
                hasher.update(&[1]);
                hasher.update(text.as_bytes());
            }
            EventId::Uuid(bits) => {
                hasher.update(&[2]);
                hasher.update(&bits.to_be_bytes());
            }
        }
        hasher.finalize()
    }

    pub(crate) fn insert(&self, conn: &Connection) -> Attempt<()> {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO gone_ids (seq, stream, offset, ts, id, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            self.seq as i64,
            self.stream,
            self.offset as i64,
            self.ts as i64,
            Id(&self.id),
            self.crc()
        ])?;
        Ok(())
    }

    /// Reads the columns seq, stream, offset, ts and id. `None` for a row without a readable id.
    fn read(row: &Row<'_>) -> rusqlite::Result<Option<Tombstone>> {
        let number = |at: usize| row.get::<_, i64>(at).map(|value| value as u64);
        let (seq, stream, offset, ts) = (number(0)?, row.get(1)?, number(2)?, number(3)?);
        let id = row::read_id(row.get_ref(4)?).flatten();
        Ok(id.map(|id| Tombstone { seq, stream, offset, ts, id }))
    }

    /// Also reads the checksum. `None` for a row that fails it.
    fn read_checked(row: &Row<'_>) -> rusqlite::Result<Option<Tombstone>> {
        let crc: i64 = row.get(5)?;
        Ok(Tombstone::read(row)?.filter(|tombstone| i64::from(tombstone.crc()) == crc))
    }
}

/// Returns what is kept of the deleted event that had this `seq`.
pub(crate) fn find(conn: &Connection, seq: u64) -> Attempt<Option<Tombstone>> {
    let mut select =
        conn.prepare_cached("SELECT seq, stream, offset, ts, id, crc FROM gone_ids WHERE seq = ?1")?;
    Ok(select.query_row([seq as i64], Tombstone::read_checked).optional()?.flatten())
}

/// Fails if the row of this `seq` fails its checksum. For copies of a journal.
pub(crate) fn check(conn: &Connection, seq: u64) -> Attempt<()> {
    let mut select =
        conn.prepare_cached("SELECT seq, stream, offset, ts, id, crc FROM gone_ids WHERE seq = ?1")?;
    match select.query_row([seq as i64], Tombstone::read_checked).optional()? {
        Some(None) => Err(SqliteFault::DamagedRow("gone_ids", seq.to_string())),
        _ => Ok(()),
    }
}

/// Returns what is kept of deleted events with these seqs, in order.
pub(crate) fn within(conn: &Connection, first: u64, last: u64) -> Attempt<Vec<Tombstone>> {
    let mut select = conn.prepare_cached(
        "SELECT seq, stream, offset, ts, id, crc FROM gone_ids WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
    )?;
    let rows = select.query_map([first as i64, last as i64], Tombstone::read_checked)?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Keeps the ids of a piece whose events are about to be deleted. Ids before `first_seq` are not kept: no hash leads to
/// them.
pub(crate) fn leave(conn: &Connection, piece: Piece, first_seq: u64) -> Attempt<()> {
    let first = piece.seq.max(first_seq);
    let last = piece.seq + piece.count - 1;
    if first > last {
        return Ok(());
    }
    let mut select = conn.prepare_cached(
        "SELECT seq, stream, offset, ts, id FROM events \
         WHERE seq BETWEEN ?1 AND ?2 AND brought = 1 ORDER BY seq",
    )?;
    let rows = select.query_map([first as i64, last as i64], Tombstone::read)?;
    let left: Vec<Option<Tombstone>> = rows.collect::<rusqlite::Result<_>>()?;
    left.iter().flatten().try_for_each(|tombstone| tombstone.insert(conn))
}

/// Deletes rows to which no hash leads any more: those before `first_seq`, oldest first. Returns how many rows were
/// deleted; fewer than `rows_max` when no more are left.
pub(crate) fn forget(conn: &Connection, first_seq: u64, rows_max: usize) -> Attempt<usize> {
    let mut delete = conn.prepare_cached(
        "DELETE FROM gone_ids WHERE seq IN (SELECT seq FROM gone_ids WHERE seq < ?1 ORDER BY seq LIMIT ?2)",
    )?;
    Ok(delete.execute([first_seq as i64, i64::try_from(rows_max).unwrap_or(i64::MAX)])?)
}

/// Returns the seqs of rows that fail their checksum.
pub(crate) fn damaged(conn: &Connection) -> Attempt<Vec<u64>> {
    let mut select = conn.prepare("SELECT seq, stream, offset, ts, id, crc FROM gone_ids ORDER BY seq")?;
    let mut rows = select.query([])?;
    let mut damaged = Vec::new();
    while let Some(row) = rows.next()? {
        if !Tombstone::read_checked(row).is_ok_and(|tombstone| tombstone.is_some()) {
            damaged.push(row.get::<_, i64>(0)? as u64);
        }
    }
    Ok(damaged)
}
