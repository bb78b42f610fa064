//! Checks every event, found the way readers find it: no unexpected hole, every checksum right, time never decreasing.

use std::collections::BTreeSet;

use millrace_model::{Findings, Offset, Timestamp};
use millrace_store::StreamBounds;
use rusqlite::{Connection, params};

use super::RESTORE;
use super::commits::Logged;
use super::streams::StreamRows;
use crate::error::{Attempt, SqliteFault};
use crate::reading::index::{Piece, StoredRun, StreamRow};
use crate::rows::loc::Loc;
use crate::rows::row;

/// Rows read by one statement; also how many rows are then read one by one when a page is damaged.
const ROWS_PER_SELECT: u64 = 1024;
const MISSING: &str = "its row is missing";
const LOST: &str = "readers are told and pass over it; only a backup has it (`millrace restore`)";

#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) whole: u64,
    pub(super) bounds: Vec<StreamBounds>,
}

/// Stream id and offset of the events that readers have recorded as damaged.
type KnownDamage = BTreeSet<(i64, u64)>;

pub(super) fn walk(
    conn: &Connection,
    streams: &StreamRows,
    logged: &Logged,
    findings: &mut Findings,
) -> Attempt<Walked> {
    let known = known(conn)?;
    let mut walked = Walked::default();
    let mut seen = 0;
    for row in streams.values() {
        let mut walk = StreamWalk::new(conn, row, &known, findings);
        walk.folded()?;
        walk.unfolded(logged.runs.get(&row.id).map_or(&[], Vec::as_slice))?;
        walk.report_bad();
        seen += walk.seen;
        walked.whole += walk.whole;
        if !row.dropped {
            walked.bounds.push(walk.bounds());
        }
    }
    strays(conn, seen, logged.next_seq, findings)?;
    Ok(walked)
}

fn known(conn: &Connection) -> Attempt<KnownDamage> {
    let mut select = conn.prepare("SELECT stream, offset FROM quarantine")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Finds rows that belong to no stream.
fn strays(conn: &Connection, seen: u64, next_seq: u64, findings: &mut Findings) -> Attempt<()> {
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0).map(|count| count as u64));
    let rows = count("SELECT count(*) FROM events")?;
    if rows > seen {
        let what = format!("{} rows belong to no stream: nobody can read them", rows - seen);
        findings.problem("table events", what, RESTORE);
    }
    let last = count("SELECT ifnull(max(seq), 0) FROM events")?;
    if last >= next_seq {
        let what = format!("the last row is at place {last}, but {next_seq} is to be given next");
        findings.problem("table events", what, RESTORE);
    }
    Ok(())
}

/// Consecutive offsets with the same problem.
struct Bad {
    from: u64,
    to: u64,
    reason: &'static str,
    recorded: bool,
}

struct StreamWalk<'a> {
    conn: &'a Connection,
    row: &'a StreamRow,
    known: &'a KnownDamage,
    findings: &'a mut Findings,
    /// The next offset to be accounted for.
    at: u64,
    last_ts: u64,
    seen: u64,
    whole: u64,
    bytes: u64,
    bad: Option<Bad>,
    scratch: Vec<u8>,
}

impl<'a> StreamWalk<'a> {
    fn new(
        conn: &'a Connection,
        row: &'a StreamRow,
        known: &'a KnownDamage,
        findings: &'a mut Findings,
    ) -> StreamWalk<'a> {
        let (at, scratch) = (row.reclaimed, Vec::new());
        StreamWalk {
            conn,
            row,
            known,
            findings,
            at,
            last_ts: 0,
            seen: 0,
            whole: 0,
            bytes: 0,
            bad: None,
            scratch,
        }
    }

    fn bounds(&self) -> StreamBounds {
        StreamBounds {
            stream: self.row.stream.clone(),
            start: Offset(self.row.start),
            next: Offset(self.at),
            bytes: self.bytes,
            last_ts: Timestamp(self.last_ts.max(self.row.last_ts)),
        }
    }

    /// Checks the folded events, which `loc` leads to.
    fn folded(&mut self) -> Attempt<()> {
        let (id, to) = (self.row.id, self.row.folded);
        while self.at < to {
            let found = match Loc::at_or_after(self.conn, id, self.at) {
                Err(SqliteFault::Malformed(table, key)) => {
                    let place = format!("table {table}, {} from offset {key}", self.row.stream);
                    self.findings.problem(place, "fails its checksum", RESTORE);
                    self.hole(self.first_after()?.unwrap_or(to).min(to));
                    continue;
                }
                found => found?,
            };
            let Some(loc) = found.filter(|loc| loc.offset < to) else {
                self.hole(to);
                break;
            };
            self.hole(loc.offset);
            for piece in &loc.pieces {
                if let Some(piece) = piece.clip(self.at, to) {
                    self.piece(piece)?;
                }
            }
            self.hole(loc.end().min(to));
        }
        Ok(())
    }

    /// Returns the offset at which `loc` continues behind a row that cannot be read.
    fn first_after(&self) -> Attempt<Option<u64>> {
        let mut select = self
            .conn
            .prepare_cached("SELECT min(first_offset) FROM loc WHERE stream = ?1 AND first_offset > ?2")?;
        let first: Option<i64> = select.query_row(params![self.row.id, self.at as i64], |row| row.get(0))?;
        Ok(first.map(|first| first as u64))
    }

    /// Checks the unfolded events, which only `commits` leads to.
    fn unfolded(&mut self, runs: &[StoredRun]) -> Attempt<()> {
        for run in runs.iter().filter(|run| run.offset >= self.row.folded) {
            self.hole(run.offset);
            let piece = Piece { offset: run.offset, seq: run.seq, count: run.count };
            if let Some(piece) = piece.clip(self.at, u64::MAX) {
                self.piece(piece)?;
            }
        }
        if !self.row.dropped && self.row.start > self.at {
            let what = format!("starts at {}, behind its end at {}", self.row.start, self.at);
            self.findings.problem(format!("stream {}", self.row.stream), what, RESTORE);
        }
        if !self.row.dropped && self.row.compacted_to > self.at {
            let what = format!("is compacted up to {}, behind its end at {}", self.row.compacted_to, self.at);
            self.findings.problem(format!("stream {}", self.row.stream), what, RESTORE);
        }
        Ok(())
    }

    /// Reports that no row says where the offsets up to `to` are.
    fn hole(&mut self, to: u64) {
        self.bad_until(to, "no row says where it is");
    }

    fn piece(&mut self, piece: Piece) -> Attempt<()> {
        let mut from = piece.offset;
        while let Some(part) = piece.clip(from, from.saturating_add(ROWS_PER_SELECT)) {
            from = part.end();
            match self.rows(part) {
                Err(SqliteFault::Sqlite(error)) if SqliteFault::is_damage(&error) => self.one_by_one(part)?,
                done => done?,
            }
            self.bad_until(part.end(), MISSING);
        }
        Ok(())
    }

    /// Checks the rows of a piece one by one: a bad page must not hide its neighbours.
    fn one_by_one(&mut self, part: Piece) -> Attempt<()> {
        while let Some(one) = part.clip(self.at, self.at.saturating_add(1)) {
            match self.rows(one) {
                Err(SqliteFault::Sqlite(error)) if SqliteFault::is_damage(&error) => {
                    self.bad_until(one.end(), "its page is damaged");
                }
                done => {
                    done?;
                    self.bad_until(one.end(), MISSING);
                }
            }
        }
        Ok(())
    }

    fn rows(&mut self, part: Piece) -> Attempt<()> {
        let conn = self.conn;
        let mut select = conn.prepare_cached(row::SELECT)?;
        let last = part.seq.saturating_add(part.count - 1);
        let mut rows = select.query(params![part.seq as i64, last as i64])?;
        while let Some(found) = rows.next()? {
            let offset = part.offset + (found.get::<_, i64>(0)? as u64).saturating_sub(part.seq);
            self.bad_until(offset, MISSING);
            self.seen += 1;
            match row::read(found, &self.row.stream, self.row.id, offset, &mut self.scratch) {
                None => self.bad_until(offset + 1, "its checksum does not match"),
                Some(event) => {
                    self.whole += u64::from(offset >= self.row.start && !self.row.dropped);
                    self.bytes += event.body.bytes() as u64;
                    self.time(offset, event.ts.0);
                    self.at = offset + 1;
                }
            }
        }
        Ok(())
    }

    fn time(&mut self, offset: u64, ts: u64) {
        if ts < self.last_ts {
            let what = format!("its time {ts} is before {}, that of an earlier event", self.last_ts);
            self.findings.problem(format!("stream {}, offset {offset}", self.row.stream), what, RESTORE);
        }
        self.last_ts = self.last_ts.max(ts);
    }

    /// Reports that every offset from the next one up to `to` has this problem. Offsets below the stream's start may be
    /// missing.
    fn bad_until(&mut self, to: u64, reason: &'static str) {
        // An event that compaction removed has no row, but everything else that leads to it is still there.
        let removed = if reason == MISSING { self.row.compacted_to } else { 0 };
        let from = self.at.max(self.row.start).max(removed);
        self.at = self.at.max(to);
        if from >= to || self.row.dropped {
            return;
        }
        let recorded = self.known.contains(&(self.row.id, from));
        match &mut self.bad {
            Some(bad) if bad.to == from && bad.reason == reason && bad.recorded == recorded => bad.to = to,
            _ => {
                self.report_bad();
                self.bad = Some(Bad { from, to, reason, recorded });
            }
        }
    }

    fn report_bad(&mut self) {
        let Some(bad) = self.bad.take() else { return };
        let stream = &self.row.stream;
        let place = match bad.to - bad.from {
            1 => format!("stream {stream}, offset {}", bad.from),
            _ => format!("stream {stream}, offsets {} to {}", bad.from, bad.to - 1),
        };
        let recorded = if bad.recorded { " (known: a reader has met it and set it aside)" } else { "" };
        self.findings.problem(place, format!("{}{recorded}", bad.reason), LOST);
    }
}
