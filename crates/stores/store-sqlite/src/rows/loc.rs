//! Rows of `loc`: where the folded events of a stream are.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Attempt, SqliteFault};
use crate::reading::index::{Piece, StoredRun};
use crate::rows::codec;

/// Consecutive offsets of a stream, whose events lie in one or more pieces of the table `events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loc {
    pub(crate) offset: u64,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) brought: u64,
    pub(crate) first_ts: u64,
    pub(crate) last_ts: u64,
    pub(crate) pieces: Vec<Piece>,
}

const COLUMNS: &str = "first_offset, count, bytes, brought, first_ts, last_ts, pieces";

impl Loc {
    pub(crate) fn of(run: &StoredRun) -> Loc {
        Loc {
            offset: run.offset,
            count: run.count,
            bytes: run.bytes,
            brought: run.brought,
            first_ts: run.first_ts,
            last_ts: run.last_ts,
            pieces: vec![Piece { offset: run.offset, seq: run.seq, count: run.count }],
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.offset + self.count
    }

    /// Adds the run that follows.
    pub(crate) fn extend(&mut self, run: &StoredRun) {
        self.count += run.count;
        self.bytes += run.bytes;
        self.brought += run.brought;
        self.last_ts = run.last_ts;
        match self.pieces.last_mut() {
            Some(last) if last.seq + last.count == run.seq => last.count += run.count,
            _ => self.pieces.push(Piece { offset: run.offset, seq: run.seq, count: run.count }),
        }
    }

    fn context(&self, stream: i64) -> [u64; 7] {
        [stream as u64, self.offset, self.count, self.bytes, self.brought, self.first_ts, self.last_ts]
    }

    pub(crate) fn insert(&self, conn: &Connection, stream: i64) -> Attempt<()> {
        let pieces = codec::encode_pieces(&self.pieces, &self.context(stream));
        conn.prepare_cached(&format!(
            "INSERT INTO loc (stream, {COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        ))?
        .execute(params![
            stream,
            self.offset as i64,
            self.count as i64,
            self.bytes as i64,
            self.brought as i64,
            self.first_ts as i64,
            self.last_ts as i64,
            pieces
        ])?;
        Ok(())
    }

    pub(crate) fn delete(conn: &Connection, stream: i64, first_offset: u64) -> Attempt<()> {
        conn.prepare_cached("DELETE FROM loc WHERE stream = ?1 AND first_offset = ?2")?
            .execute(params![stream, first_offset as i64])?;
        Ok(())
    }

    fn read(row: &Row<'_>, stream: i64) -> Attempt<Loc> {
        let number = |at: usize| row.get::<_, i64>(at).map(|value| value as u64);
        let mut loc = Loc {
            offset: number(0)?,
            count: number(1)?,
            bytes: number(2)?,
            brought: number(3)?,
            first_ts: number(4)?,
            last_ts: number(5)?,
            pieces: Vec::new(),
        };
        let bytes: Vec<u8> = row.get(6)?;
        loc.pieces = codec::decode_pieces(&bytes, loc.offset, &loc.context(stream))
            .map_err(SqliteFault::malformed("loc", loc.offset))?;
        Ok(loc)
    }

    /// Returns the row that holds `offset`, or the last one before it.
    pub(crate) fn at_or_before(conn: &Connection, stream: i64, offset: u64) -> Attempt<Option<Loc>> {
        const SQL: &str = "SELECT first_offset, count, bytes, brought, first_ts, last_ts, pieces FROM loc \
             WHERE stream = ?1 AND first_offset <= ?2 ORDER BY first_offset DESC LIMIT 1";
        let mut select = conn.prepare_cached(SQL)?;
        let found =
            select.query_row(params![stream, offset as i64], |row| Ok(Loc::read(row, stream))).optional()?;
        found.transpose()
    }

    /// Returns the first row after `offset`.
    pub(crate) fn after(conn: &Connection, stream: i64, offset: u64) -> Attempt<Option<Loc>> {
        const SQL: &str = "SELECT first_offset, count, bytes, brought, first_ts, last_ts, pieces FROM loc \
             WHERE stream = ?1 AND first_offset > ?2 ORDER BY first_offset LIMIT 1";
        let mut select = conn.prepare_cached(SQL)?;
        let found =
            select.query_row(params![stream, offset as i64], |row| Ok(Loc::read(row, stream))).optional()?;
        found.transpose()
    }

    /// Returns the row that holds `offset`, or the first one after it.
    pub(crate) fn at_or_after(conn: &Connection, stream: i64, offset: u64) -> Attempt<Option<Loc>> {
        match Loc::at_or_before(conn, stream, offset)? {
            Some(loc) if loc.end() > offset => Ok(Some(loc)),
            _ => Loc::after(conn, stream, offset),
        }
    }
}
