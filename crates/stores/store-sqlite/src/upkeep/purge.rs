//! Deletes rows of handlers about events that are gone (which lane they waited in, how they ended), a few at a time.
//!
//! Each handle scans a trimmed stream once after each trim; a dropped stream is scanned before its row is deleted.

use millrace_model::{FinishedRow, Offset, Priority, Space, Stream, keys, lane_of};
use millrace_store::{KeyRange, StoreError};
use rusqlite::{Connection, params};

use crate::error::Attempt;
use crate::reading::index::StreamRow;
use crate::rows::tables;
use crate::store_core::StoreCore;
use crate::writing::commit::HOUSEKEEPING;
use crate::writing::transaction::{Change, Writer};

impl StoreCore {
    /// Does a slice for the first stream that was trimmed since its last scan. Returns how many rows were deleted.
    pub(crate) fn purge_slice(&self, writer: &mut Writer, rows_max: usize) -> Result<usize, StoreError> {
        let found = {
            let index = self.index();
            let first = index.purgeable.first().and_then(|id| index.by_id(*id));
            first.map(|state| state.row.clone())
        };
        let Some(row) = found else { return Ok(0) };
        let deleted = self.transact_unless_damaged(writer, HOUSEKEEPING, |writer| {
            Ok((below(&writer.conn, &row, row.start, rows_max)?, Change::default()))
        })?;
        // Rows on a damaged page stay: they only take space.
        let rows = deleted.unwrap_or(0);
        if rows < rows_max {
            self.index_mut().purged(row.id, row.start);
        }
        Ok(rows)
    }
}

/// Deletes rows about events of the stream below `to`.
fn below(conn: &Connection, row: &StreamRow, to: u64, rows_max: usize) -> Attempt<usize> {
    let place = |offset: u64| format!("{}/{offset:016x}", row.stream);
    let mut rows = delete_range(conn, Space::Finished, &place(0), &place(to), rows_max)?;
    let incarnation = row.id as u64;
    let mut seek = keys::off_priorities_of(&row.stream, incarnation);
    let all = KeyRange::prefix(&seek);
    while rows < rows_max {
        let range = KeyRange { from: seek, to: all.to.clone() };
        let first = tables::scan(conn, Space::OffPriority, &range, 1, tables::Damaged::Empty)?;
        let Some(lane) = first.first().and_then(|row| keys::off_priority_place(&row.key)) else { break };
        let key = |offset| keys::off_priority(&row.stream, incarnation, lane.0, Offset(offset));
        rows += delete_range(conn, Space::OffPriority, &key(0), &key(to), rows_max - rows)?;
        let Some(lower) = lane.0.checked_sub(1) else { break };
        seek = keys::off_priority(&row.stream, incarnation, lower, Offset::ZERO);
    }
    Ok(rows)
}

/// Deletes rows about events of a dropped stream. Returns how many rows were deleted or skipped, and the key at which
/// the next slice continues; `None` at the end. The time of a row in `finished` tells whether it belongs to a later
/// stream of the same name.
pub(crate) fn dropped(
    conn: &Connection,
    row: &StreamRow,
    has_successor: bool,
    at: Option<String>,
    rows_max: usize,
) -> Attempt<(usize, Option<String>)> {
    let off = KeyRange::prefix(&keys::off_priorities_of(&row.stream, row.id as u64));
    let mut rows =
        delete_range(conn, Space::OffPriority, &off.from, off.to.as_deref().unwrap_or_default(), rows_max)?;
    let mut range = KeyRange::prefix(&format!("{}/", row.stream));
    range.from = at.unwrap_or(range.from);
    while rows < rows_max {
        let found = tables::scan(conn, Space::Finished, &range, rows_max - rows, tables::Damaged::Empty)?;
        let full = found.len() == rows_max - rows;
        rows += found.len();
        for finished in found {
            let read = FinishedRow::decode(&finished.key, &finished.value);
            let at = read.map_or(0, |read| read.at.0);
            if at < row.dropped_at || at == row.dropped_at && !has_successor {
                tables::delete(conn, Space::Finished, &finished.key)?;
            }
            range.from = format!("{}\0", finished.key);
        }
        if !full {
            return Ok((rows, None));
        }
    }
    Ok((rows, Some(range.from)))
}

/// Deletes rows about an event that is being removed.
pub(crate) fn forget_event(
    conn: &Connection,
    stream: &Stream,
    id: i64,
    offset: Offset,
    priority: Priority,
) -> Attempt<()> {
    if let Some(lane) = lane_of(priority) {
        tables::delete(conn, Space::OffPriority, &keys::off_priority(stream, id as u64, lane, offset))?;
    }
    let place = |end: char| format!("{stream}/{:016x}{end}", offset.0);
    // `0` is the character after `/`.
    delete_range(conn, Space::Finished, &place('/'), &place('0'), usize::MAX)?;
    Ok(())
}

fn delete_range(conn: &Connection, space: Space, from: &str, to: &str, rows_max: usize) -> Attempt<usize> {
    let table = space.as_str();
    let mut delete = conn.prepare_cached(&format!(
        "DELETE FROM {table} WHERE key IN (SELECT key FROM {table} WHERE key >= ?1 AND key < ?2 LIMIT ?3)"
    ))?;
    Ok(delete.execute(params![from, to, i64::try_from(rows_max).unwrap_or(i64::MAX)])?)
}
