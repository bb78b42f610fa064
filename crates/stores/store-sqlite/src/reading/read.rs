//! Reads a page of a stream: a plan from the index, rows from the table `events`, every row checked.

use std::sync::Arc;

use millrace_model::{Offset, Stream};
use millrace_store::{Page, ReadLimit};
use rusqlite::{Connection, params};

use crate::error::{Attempt, SqliteFault};
use crate::opening::load;
use crate::reading::index::Piece;
use crate::rows::loc::Loc;
use crate::rows::row;
use crate::store_core::StoreCore;
use crate::writing::damage::DAMAGED_PAGE;
use crate::writing::quarantine::Quarantined;

/// Rows read by one statement, so that a small byte limit does not read a whole run.
const ROWS_PER_SELECT: u64 = 1024;

/// The only trace that removing an event leaves.
const MISSING: &str = "its row is missing";

/// The plan of a read by the index, taken under a single short lock.
struct ReadPlan {
    id: i64,
    from: u64,
    /// The end of the offsets that the page may hold.
    to: u64,
    folded: u64,
    pieces: Vec<Piece>,
}

/// An offset that should have a row but has none that can be trusted.
struct Suspect {
    seq: Option<u64>,
    offset: u64,
    reason: &'static str,
}

struct PageReader<'a> {
    conn: &'a Connection,
    stream: &'a Stream,
    id: i64,
    limit: ReadLimit,
    page: Page,
    bytes: usize,
    suspects: Vec<Suspect>,
    scratch: Vec<u8>,
    full: bool,
}

impl StoreCore {
    fn plan(&self, stream: &Stream, from: u64, events_max: usize) -> Option<ReadPlan> {
        let index = self.index();
        let state = index.get(stream)?;
        let from = from.clamp(state.row.start, state.next);
        let to = from.saturating_add(events_max as u64).min(state.next);
        let first = state.runs.partition_point(|run| run.end() <= from);
        let runs = state.runs.range(first..).take_while(|run| run.offset < to);
        let pieces = runs
            .filter_map(|run| Piece { offset: run.offset, seq: run.seq, count: run.count }.clip(from, to))
            .collect();
        Some(ReadPlan { id: state.row.id, from, to, folded: state.row.folded, pieces })
    }

    pub(crate) fn read_page(
        &self,
        conn: &Connection,
        stream: &Stream,
        from: u64,
        limit: ReadLimit,
    ) -> Attempt<Page> {
        let Some(plan) = self.plan(stream, from, limit.events_max) else { return Ok(Page::default()) };
        // The snapshot is taken after the plan, so it contains everything that the plan refers to.
        let transaction = conn.unchecked_transaction()?;
        let page = Page { through: Offset(plan.from - 1), ..Page::default() };
        let mut reader = PageReader {
            conn: &transaction,
            stream,
            id: plan.id,
            limit,
            page,
            bytes: 0,
            suspects: Vec::new(),
            scratch: Vec::new(),
            full: false,
        };
        reader.folded(plan.from, plan.to.min(plan.folded))?;
        for piece in plan.pieces {
            reader.piece(piece)?;
        }
        if reader.suspects.is_empty() {
            return Ok(reader.page);
        }
        let (page, suspects) = (reader.page, reader.suspects);
        self.judge(&transaction, plan.id, page, suspects)
    }

    /// Sorts out suspects: rows that were removed, or trimmed and deleted since the plan was made, are legally gone;
    /// the others are damaged.
    fn judge(&self, conn: &Connection, id: i64, mut page: Page, suspects: Vec<Suspect>) -> Attempt<Page> {
        let (start, compacted_to) = match load::stream_by_id(conn, id)? {
            Some(row) if !row.dropped => (row.start, row.compacted_to),
            _ => (u64::MAX, 0),
        };
        let gone = |suspect: &Suspect| {
            suspect.offset < start || suspect.offset < compacted_to && suspect.reason == MISSING
        };
        for suspect in suspects.into_iter().filter(|suspect| !gone(suspect)) {
            let offset = Offset(suspect.offset);
            page.damaged.push(offset);
            if let Some(seq) = suspect.seq {
                let reason = suspect.reason.to_owned();
                self.quarantine.report(Quarantined { seq, stream: id, offset, reason });
            }
        }
        Ok(page)
    }
}

impl PageReader<'_> {
    fn folded(&mut self, from: u64, to: u64) -> Attempt<()> {
        let mut at = from;
        while at < to && !self.full {
            let loc = Loc::at_or_after(self.conn, self.id, at)?.filter(|loc| loc.offset < to);
            let Some(loc) = loc else { return self.missing(at, to) };
            self.missing(at, loc.offset)?;
            for piece in loc.pieces.iter().filter_map(|piece| piece.clip(at, to)) {
                self.piece(piece)?;
            }
            at = loc.end();
        }
        Ok(())
    }

    /// Suspects all offsets of a range whose seq is not known.
    fn missing(&mut self, from: u64, to: u64) -> Attempt<()> {
        for offset in from..to {
            self.suspect(None, offset, "no row says where it is");
        }
        Ok(())
    }

    fn suspect(&mut self, seq: Option<u64>, offset: u64, reason: &'static str) {
        self.suspects.push(Suspect { seq, offset, reason });
        self.page.through = Offset(offset);
    }

    fn piece(&mut self, piece: Piece) -> Attempt<()> {
        let mut at = piece.offset;
        while at < piece.end() && !self.full {
            let Some(part) = piece.clip(at, at.saturating_add(ROWS_PER_SELECT)) else { return Ok(()) };
            self.rows(part)?;
            at = part.end();
        }
        Ok(())
    }

    fn rows(&mut self, piece: Piece) -> Attempt<()> {
        let mut expected = piece.offset;
        match self.select(piece, &mut expected) {
            // A bad page must not hide its neighbours: the rest is read row by row.
            Err(SqliteFault::Sqlite(error)) if SqliteFault::is_damage(&error) => {
                while let Some(one) = piece.clip(expected, expected + 1).filter(|_| !self.full) {
                    if let Err(fault) = self.select(one, &mut expected) {
                        match fault {
                            SqliteFault::Sqlite(error) if SqliteFault::is_damage(&error) => {
                                self.suspect(Some(one.seq), one.offset, DAMAGED_PAGE);
                                expected = one.end();
                            }
                            other => return Err(other),
                        }
                    }
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Reads the rows of a piece. `expected` is the next offset that was not seen yet; it stays correct when a row
    /// cannot be read.
    fn select(&mut self, piece: Piece, expected: &mut u64) -> Attempt<()> {
        let conn = self.conn;
        let mut select = conn.prepare_cached(row::SELECT)?;
        let last = piece.seq + piece.count - 1;
        let mut rows = select.query(params![piece.seq as i64, last as i64])?;
        while let Some(found) = rows.next()? {
            let offset = piece.offset + (found.get::<_, i64>(0)? as u64).saturating_sub(piece.seq);
            self.gone(piece, expected, offset);
            let event = row::read(found, self.stream, self.id, offset, &mut self.scratch);
            *expected = offset + 1;
            let Some(event) = event else {
                self.suspect(
                    Some(piece.seq + (offset - piece.offset)),
                    offset,
                    "its checksum does not match",
                );
                continue;
            };
            let bytes = self.bytes.saturating_add(event.body.bytes());
            if bytes > self.limit.bytes_max && !self.page.events.is_empty() {
                self.full = true;
                return Ok(());
            }
            self.bytes = bytes;
            self.page.through = event.offset;
            self.page.events.push(Arc::new(event));
        }
        self.gone(piece, expected, piece.end());
        Ok(())
    }

    /// Suspects the offsets between the last row seen and `offset`, which have no rows.
    fn gone(&mut self, piece: Piece, expected: &mut u64, offset: u64) {
        while *expected < offset {
            self.suspect(Some(piece.seq + (*expected - piece.offset)), *expected, MISSING);
            *expected += 1;
        }
    }
}
