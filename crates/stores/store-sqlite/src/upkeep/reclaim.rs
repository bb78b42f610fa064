//! Reclaiming: deletes the rows of events that were trimmed or dropped, a few at a time.

use millrace_store::StoreError;
use rusqlite::Connection;

use crate::dedupe::tombstones;
use crate::error::{Attempt, SqliteFault};
use crate::opening::load;
use crate::reading::index::{Piece, StreamRow};
use crate::rows::loc::Loc;
use crate::store_core::StoreCore;
use crate::upkeep::purge;
use crate::writing::commit::HOUSEKEEPING;
use crate::writing::transaction::{Change, Writer};

/// How a slice treats rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowTreatment {
    /// Deletes rows. Damage rolls the slice back.
    Delete,
    /// Leaves rows near damage in place: the slice only marks them as not needed, and sets unreadable ones aside.
    SkipDamaged,
}

impl StoreCore {
    /// Does a slice for the first stream that has reclaimable rows. Returns how many rows were deleted, folded or
    /// skipped.
    pub(crate) fn reclaim_slice(&self, writer: &mut Writer, rows_max: usize) -> Result<usize, StoreError> {
        let deleted = self.transact_unless_damaged(writer, HOUSEKEEPING, |writer| {
            self.reclaim_first(writer, rows_max, RowTreatment::Delete)
        })?;
        match deleted {
            Ok(rows) => Ok(rows),
            Err(_) => self.transact(writer, HOUSEKEEPING, |writer| {
                self.reclaim_first(writer, rows_max, RowTreatment::SkipDamaged)
            }),
        }
    }

    fn reclaim_first(
        &self,
        writer: &mut Writer,
        rows_max: usize,
        treatment: RowTreatment,
    ) -> Attempt<(usize, Change)> {
        let mut change = Change::default();
        let found = {
            let index = self.index();
            let first = index.reclaimable.first().and_then(|id| index.by_id(*id));
            first.map(|state| (state.row.clone(), state.reclaim_to()))
        };
        let Some((row, to)) = found else { return Ok((0, change)) };
        let rows = if row.folded < to {
            // Only folded events are deleted: their sums and positions are then in one table.
            self.dedupe_catch_up(writer)?;
            self.fold_stream(writer, row.id, rows_max, &mut change)?
        } else {
            let at = writer.purging.remove(&row.id);
            let id = row.id;
            let (rows, at) = self.reclaim(writer, row, to, rows_max, treatment, at, &mut change)?;
            writer.purging.extend(at.map(|at| (id, at)));
            rows
        };
        Ok((rows, change))
    }

    /// Deletes commits that neither the index nor watchers need any more. Returns how many rows were deleted.
    pub(crate) fn prune_slice(&self, writer: &mut Writer, rows_max: usize) -> Result<usize, StoreError> {
        let through = self.prunable(writer);
        let (rows, to) = self.transact(writer, HOUSEKEEPING, |writer| {
            let first = load::first_commit(&writer.conn)?.unwrap_or(0);
            let to = through.min(first.saturating_add(rows_max as u64 - 1));
            let mut delete = writer.conn.prepare_cached("DELETE FROM commits WHERE c <= ?1")?;
            let rows = delete.execute([to as i64])?;
            Ok(((rows, to), Change::default()))
        })?;
        if to >= through {
            writer.pruned_through = through;
        }
        Ok(rows)
    }

    /// Returns the last commit that may be deleted.
    pub(crate) fn prunable(&self, writer: &Writer) -> u64 {
        // The newest row must stay: the next commit number and the next seq follow from it.
        let kept = self.options.commits_kept.max(1);
        writer.prune_through.min(self.index().last.saturating_sub(kept))
    }
}

impl StoreCore {
    #[allow(clippy::too_many_arguments)]
    fn reclaim(
        &self,
        writer: &Writer,
        mut row: StreamRow,
        to: u64,
        rows_max: usize,
        treatment: RowTreatment,
        purging: Option<String>,
        change: &mut Change,
    ) -> Attempt<(usize, Option<String>)> {
        let (conn, lookups) = (&writer.conn, &writer.lookups);
        let first_seq = self.dedupe().first_seq();
        let mut budget = rows_max as u64;
        while row.reclaimed < to && budget > 0 {
            let loc = match treatment {
                RowTreatment::Delete => match Loc::at_or_after(conn, row.id, row.reclaimed) {
                    Err(SqliteFault::Malformed(_, offset)) => {
                        // The positions of this row's events are lost, so the events keep their space.
                        Loc::delete(conn, row.id, offset)?;
                        budget -= 1;
                        continue;
                    }
                    found => found?,
                },
                // This transaction has changed no row of `loc`, so the committed rows are the same as those inside it.
                RowTreatment::SkipDamaged => match Loc::at_or_after(lookups, row.id, row.reclaimed) {
                    Err(fault) if fault.is_damaged_bookkeeping() => None,
                    found => found?,
                },
            };
            let Some(loc) = loc.filter(|loc| loc.offset < to) else {
                row.reclaimed = to;
                break;
            };
            let from = row.reclaimed.max(loc.offset);
            let end = loc.end().min(to).min(from + budget);
            // Dropping a topic also drops its ids.
            let leaves = loc.brought > 0 && !row.dropped && treatment == RowTreatment::Delete;
            for piece in loc.pieces.iter().filter_map(|piece| piece.clip(from, end)) {
                if leaves {
                    tombstones::leave(conn, piece, first_seq)?;
                }
                match treatment {
                    RowTreatment::Delete => row.bytes = row.bytes.saturating_sub(delete_events(conn, piece)?),
                    RowTreatment::SkipDamaged => self.report_unreadable(lookups, row.id, piece)?,
                }
            }
            budget -= end - from;
            row.reclaimed = end;
            if end == loc.end() && treatment == RowTreatment::Delete {
                Loc::delete(conn, row.id, loc.offset)?;
            }
        }
        if row.reclaimed == row.folded {
            // Missing rows could not be subtracted one by one.
            row.bytes = 0;
        }
        let mut left = None;
        if row.dropped && row.reclaimed >= to && treatment == RowTreatment::Delete {
            let successor = self.index().get(&row.stream).is_some();
            let room = (budget as usize).max(1);
            let (rows, at) = purge::dropped(conn, &row, successor, purging, room)?;
            budget = budget.saturating_sub(rows as u64);
            left = at;
        }
        if row.dropped && row.reclaimed >= to && left.is_none() {
            conn.prepare_cached("DELETE FROM streams WHERE id = ?1")?.execute([row.id])?;
            change.record.touched.push(row.id);
        } else {
            load::update_stream(conn, &row)?;
            change.touch(row);
        }
        Ok(((rows_max as u64 - budget) as usize, left))
    }

    fn report_unreadable(&self, lookups: &Connection, stream: i64, piece: Piece) -> Attempt<()> {
        for one in (piece.offset..piece.end()).filter_map(|offset| piece.clip(offset, offset + 1)) {
            match bytes_of(lookups, one) {
                Err(fault) if fault.is_damaged_page() => {
                    self.report_damaged_page(stream, one.seq, one.offset);
                }
                read => drop(read?),
            }
        }
        Ok(())
    }
}

/// Deletes the events of a piece and returns their bytes.
fn delete_events(conn: &Connection, piece: Piece) -> Attempt<u64> {
    let bytes = bytes_of(conn, piece)?;
    conn.prepare_cached("DELETE FROM events WHERE seq BETWEEN ?1 AND ?2")?.execute(range(piece))?;
    Ok(bytes)
}

fn bytes_of(conn: &Connection, piece: Piece) -> Attempt<u64> {
    let bytes: i64 = conn
        .prepare_cached(
            "SELECT ifnull(sum(octet_length(payload) + ifnull(octet_length(key), 0) + ifnull(octet_length(headers), 0)), 0) \
             FROM events WHERE seq BETWEEN ?1 AND ?2",
        )?
        .query_row(range(piece), |row| row.get(0))?;
    Ok(bytes as u64)
}

/// Returns the first and the last seq of a piece.
fn range(piece: Piece) -> [i64; 2] {
    [piece.seq as i64, (piece.seq + piece.count - 1) as i64]
}
