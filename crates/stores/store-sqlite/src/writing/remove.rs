//! Removes single events: the only write of compaction. Positions and sums of the other events stay as they are.

use millrace_model::{Offset, Priority, Stream};
use millrace_store::RecordedChange;
use rusqlite::{Connection, OptionalExtension, params};

use crate::dedupe::tombstones;
use crate::error::Attempt;
use crate::reading::index::Piece;
use crate::rows::loc::Loc;
use crate::store_core::StoreCore;
use crate::upkeep::purge;
use crate::writing::stage::CommitStage;
use crate::writing::transaction::Writer;

impl StoreCore {
    /// Removes events inside the transaction of a commit.
    pub(crate) fn remove<'a>(
        &self,
        writer: &mut Writer,
        stage: &mut CommitStage<'a>,
        stream: &'a Stream,
        offsets: &[Offset],
        compacted_to: u64,
    ) -> Attempt<()> {
        let mut removed = Vec::new();
        let first_seq = self.dedupe().first_seq();
        let Some(row) = stage.compact(self, stream, compacted_to) else { return Ok(()) };
        let id = row.id;
        let mut places =
            EventPositions { store: self, conn: &writer.conn, id: row.id, folded: row.folded, loc: None };
        for offset in offsets.iter().map(|offset| offset.0) {
            if offset < row.start || offset >= row.compacted_to {
                continue;
            }
            let Some(seq) = places.find(offset)? else { continue };
            tombstones::leave(&writer.conn, Piece { offset, seq, count: 1 }, first_seq)?;
            let Some((bytes, priority)) = delete_event(&writer.conn, seq, id, offset)? else { continue };
            purge::forget_event(&writer.conn, stream, id, Offset(offset), priority)?;
            removed.push((id, offset));
            // Unfolded events still count until they are trimmed: their sums are in `commits`.
            if offset < row.folded {
                row.bytes = row.bytes.saturating_sub(bytes);
            }
            writer.wal_bytes += WAL_BYTES_PER_REMOVAL;
        }
        if let Some(recording) = &mut writer.recording {
            let offsets = removed.iter().map(|(_, offset)| Offset(*offset)).collect();
            let (stream, number) = (stream.clone(), id as u64);
            let compacted_to = Offset(row.compacted_to);
            recording.push(RecordedChange::Remove { stream, number, offsets, compacted_to });
        }
        stage.removed.extend(removed);
        Ok(())
    }
}

/// When streams interleave, a removal dirties about a page of its own.
const WAL_BYTES_PER_REMOVAL: u64 = 512;

/// Finds the seq of events. Remembers the row of `loc` used last, because offsets come in order.
struct EventPositions<'a> {
    store: &'a StoreCore,
    conn: &'a Connection,
    id: i64,
    folded: u64,
    loc: Option<Loc>,
}

impl EventPositions<'_> {
    fn find(&mut self, offset: u64) -> Attempt<Option<u64>> {
        if offset >= self.folded {
            let index = self.store.index();
            let Some(state) = index.by_id(self.id) else { return Ok(None) };
            let at = state.runs.partition_point(|run| run.end() <= offset);
            let run = state.runs.get(at).filter(|run| run.offset <= offset);
            return Ok(run.map(|run| run.seq + (offset - run.offset)));
        }
        if self.loc.as_ref().is_none_or(|loc| offset < loc.offset || offset >= loc.end()) {
            self.loc = Loc::at_or_before(self.conn, self.id, offset)?;
        }
        let pieces = self.loc.iter().flat_map(|loc| &loc.pieces);
        let piece = pieces.filter_map(|piece| piece.clip(offset, offset + 1)).next();
        Ok(piece.map(|piece| piece.seq))
    }
}

/// Deletes an event and returns its bytes and its priority. A row that is another event is not deleted.
fn delete_event(conn: &Connection, seq: u64, stream: i64, offset: u64) -> Attempt<Option<(u64, Priority)>> {
    let deleted = conn
        .prepare_cached(
            "DELETE FROM events WHERE seq = ?1 AND stream = ?2 AND offset = ?3 RETURNING octet_length(payload) + \
             ifnull(octet_length(key), 0) + ifnull(octet_length(headers), 0), priority",
        )?
        .query_row(params![seq as i64, stream, offset as i64], |row| {
            Ok((row.get::<_, i64>(0)? as u64, Priority(row.get(1)?)))
        })
        .optional()?;
    Ok(deleted)
}
