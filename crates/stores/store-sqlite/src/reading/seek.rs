//! Finds an offset in a stream by time or by size. Time never decreases within a stream, so a binary search finds it.

use millrace_model::Stream;
use millrace_store::Retention;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Attempt, SqliteFault};
use crate::reading::index::{Piece, StoredRun};
use crate::rows::loc::Loc;
use crate::rows::row;
use crate::store_core::StoreCore;

/// The bounds of a stream by the index, taken under a single short lock.
struct View {
    id: i64,
    start: u64,
    folded: u64,
    next: u64,
}

impl StoreCore {
    pub(crate) fn seek_ts(&self, conn: &Connection, stream: &Stream, ts: u64) -> Attempt<u64> {
        let (view, run) = {
            let index = self.index();
            let Some(state) = index.get(stream) else { return Ok(1) };
            let at = state.runs.partition_point(|run| run.last_ts < ts);
            let run = state.runs.get(at).copied();
            // A run before this one ends earlier than `ts`, so no folded event can be the answer.
            let settled = at > 0;
            (View::of(state), (settled, run))
        };
        let transaction = conn.unchecked_transaction()?;
        let probe = EventProbe { conn: &transaction, is_copy: self.options.is_copy };
        let (settled, run) = run;
        if !settled && view.start < view.folded {
            let offset = seek_folded(probe, &view, ts)?;
            if offset < view.folded {
                return Ok(offset);
            }
        }
        let Some(run) = run else { return Ok(view.next) };
        if run.first_ts >= ts {
            return Ok(run.offset.max(view.start));
        }
        let piece = Piece { offset: run.offset, seq: run.seq, count: run.count };
        seek_pieces(probe, &[piece], view.start, ts)
    }

    pub(crate) fn start_under(&self, conn: &Connection, stream: &Stream, rule: Retention) -> Attempt<u64> {
        let (view, runs) = {
            let index = self.index();
            let Some(state) = index.get(stream) else { return Ok(1) };
            let runs: Vec<StoredRun> = match rule.bytes_max {
                Some(_) => state.runs.iter().copied().collect(),
                None => Vec::new(),
            };
            (View::of(state), runs)
        };
        let by_age = match rule.older_than {
            Some(ts) => self.seek_ts(conn, stream, ts.0)?,
            None => view.start,
        };
        let by_size = match rule.bytes_max {
            Some(bytes_max) => {
                let transaction = conn.unchecked_transaction()?;
                let probe = EventProbe { conn: &transaction, is_copy: self.options.is_copy };
                start_by_size(probe, &view, &runs, bytes_max)?
            }
            None => view.start,
        };
        Ok(by_age.max(by_size).clamp(view.start, view.next.max(by_age)))
    }
}

impl View {
    fn of(state: &crate::reading::index::StreamState) -> View {
        View { id: state.row.id, start: state.row.start, folded: state.row.folded, next: state.next }
    }
}

/// Returns the first folded offset that is not older than `ts`, or `view.folded`.
fn seek_folded(probe: EventProbe<'_>, view: &View, ts: u64) -> Attempt<u64> {
    let (mut low, mut high) = (view.start, view.folded);
    while low < high {
        let middle = low + (high - low) / 2;
        let Some(loc) = Loc::at_or_after(probe.conn, view.id, middle)?.filter(|loc| loc.offset < high) else {
            // No row of `loc` from `middle` on: reclaimed meanwhile, or damage that a read will report.
            high = middle;
            continue;
        };
        if loc.last_ts < ts {
            low = loc.end();
        } else if loc.first_ts >= ts {
            // `middle` lies in this row or in a gap before it; in both cases the answer is no later.
            high = loc.offset.max(low).min(middle);
        } else {
            return seek_pieces(probe, &loc.pieces, low, ts);
        }
    }
    Ok(low)
}

/// Returns the first offset from `start` on whose event is not older than `ts`; the end of the pieces if there is none.
fn seek_pieces(probe: EventProbe<'_>, pieces: &[Piece], start: u64, ts: u64) -> Attempt<u64> {
    let end = pieces.last().map_or(start, Piece::end);
    let place = |offset: u64| {
        let piece = pieces.get(pieces.partition_point(|piece| piece.end() <= offset))?;
        piece.clip(offset, offset + 1).map(|piece| piece.seq)
    };
    let (mut low, mut high) = (start.max(pieces.first().map_or(start, |piece| piece.offset)), end);
    while low < high {
        let middle = low + (high - low) / 2;
        // A missing row tells nothing: the nearest readable row after it, below `high`, is used instead.
        let mut at = middle;
        let found = loop {
            match place(at).map(|seq| probe.ts_at(seq)).transpose()?.flatten() {
                Some(found) => break Some(found),
                None if at + 1 < high => at += 1,
                None => break None,
            }
        };
        match found {
            Some(found) if found < ts => low = at + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Looks at single events. A copy of a journal must not be trimmed by a row that is damaged: events would be gone for
/// everybody. So a copy checks every row that it looks at, and fails.
#[derive(Clone, Copy)]
struct EventProbe<'a> {
    conn: &'a Connection,
    is_copy: bool,
}

impl EventProbe<'_> {
    /// Returns the time of the event at `seq`. `None` if the row is gone or damaged.
    fn ts_at(self, seq: u64) -> Attempt<Option<u64>> {
        self.check(seq, seq)?;
        let mut select = self.conn.prepare_cached("SELECT ts FROM events WHERE seq = ?1")?;
        match select.query_row([seq as i64], |row| row.get::<_, i64>(0)).optional() {
            Err(error) if SqliteFault::is_damage(&error) && !self.is_copy => Ok(None),
            found => Ok(found?.map(|ts| ts as u64)),
        }
    }

    fn check(self, first: u64, last: u64) -> Attempt<()> {
        if self.is_copy { row::check(self.conn, first, last) } else { Ok(()) }
    }
}

/// Returns the start under a size limit. Goes from the newest run back, adds whole runs by their sums, and reads single
/// events only in the run where the limit is passed.
fn start_by_size(probe: EventProbe<'_>, view: &View, runs: &[StoredRun], bytes_max: u64) -> Attempt<u64> {
    let mut room = bytes_max;
    let mut kept_from = view.next;
    for run in runs.iter().rev().filter(|run| run.end() > view.start) {
        if run.bytes > room {
            let piece = Piece { offset: run.offset, seq: run.seq, count: run.count };
            return start_in_pieces(probe, &[piece], view.start, room);
        }
        room -= run.bytes;
        kept_from = run.offset;
    }
    kept_from = kept_from.min(view.folded.max(view.start));
    while kept_from > view.start {
        let Some(loc) = Loc::at_or_before(probe.conn, view.id, kept_from - 1)? else { break };
        if loc.end() <= view.start {
            break;
        }
        if loc.bytes > room {
            return start_in_pieces(probe, &loc.pieces, view.start, room);
        }
        room -= loc.bytes;
        kept_from = loc.offset;
    }
    Ok(view.start)
}

/// If damage hides sizes, keeps all events of these pieces: they go as soon as the limit is passed in later ones.
fn start_in_pieces(probe: EventProbe<'_>, pieces: &[Piece], start: u64, room: u64) -> Attempt<u64> {
    match measure_pieces(probe, pieces, start, room) {
        Err(fault) if fault.is_damaged_page() && !probe.is_copy => {
            Ok(pieces.first().map_or(start, |piece| piece.offset.max(start)))
        }
        measured => measured,
    }
}

fn measure_pieces(probe: EventProbe<'_>, pieces: &[Piece], start: u64, mut room: u64) -> Attempt<u64> {
    let mut select = probe.conn.prepare_cached(
        "SELECT seq, octet_length(payload) + ifnull(octet_length(key), 0) + ifnull(octet_length(headers), 0) \
         FROM events WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq DESC",
    )?;
    for piece in pieces.iter().rev() {
        let Some(piece) = piece.clip(start, u64::MAX) else { break };
        probe.check(piece.seq, piece.seq + piece.count - 1)?;
        let mut rows = select.query(params![piece.seq as i64, (piece.seq + piece.count - 1) as i64])?;
        while let Some(row) = rows.next()? {
            let (seq, bytes) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
            if bytes > room {
                return Ok(piece.offset + seq.saturating_sub(piece.seq) + 1);
            }
            room -= bytes;
        }
    }
    Ok(start)
}
