//! Loads the index from the tables: all of it when a store is opened, the new commits when another process has written.

use std::ops::ControlFlow;

use millrace_model::{Partition, TopicKey};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Attempt, SqliteFault};
use crate::reading::index::{Index, StreamRow};
use crate::rows::codec::{self, CommitSummary};

const STREAM_COLUMNS: &str = "SELECT id, topic, partition, start, folded, reclaimed, bytes, last_ts, dropped, compacted_to, dropped_at, crc FROM streams";

fn stream_row(row: &Row<'_>) -> Attempt<StreamRow> {
    let number = |at: usize| row.get::<_, i64>(at).map(|value| value as u64);
    let id: i64 = row.get(0)?;
    let topic = row.get_ref(1)?.as_str().ok().and_then(|text| TopicKey::parse(text).ok());
    let partition = u32::try_from(number(2)?).ok();
    let (Some(topic), Some(partition)) = (topic, partition) else {
        return Err(SqliteFault::Malformed("streams", id as u64));
    };
    let row_crc: Option<i64> = row.get(11)?;
    let row = StreamRow {
        id,
        stream: topic.stream(Partition(partition)),
        start: number(3)?,
        folded: number(4)?,
        reclaimed: number(5)?,
        bytes: number(6)?,
        last_ts: number(7)?,
        dropped: number(8)? != 0,
        compacted_to: number(9)?,
        dropped_at: number(10)?,
    };
    // A row from before there were checksums has none.
    if row_crc.is_some_and(|stored| stored != i64::from(row.crc())) {
        return Err(SqliteFault::Malformed("streams", id as u64));
    }
    Ok(row)
}

pub(crate) fn stream_by_id(conn: &Connection, id: i64) -> Attempt<Option<StreamRow>> {
    let mut select = conn.prepare_cached(&format!("{STREAM_COLUMNS} WHERE id = ?1"))?;
    select.query_row([id], |row| Ok(stream_row(row))).optional()?.transpose()
}

/// Returns every row of `streams`, also those that cannot be read.
pub(crate) fn stream_rows(conn: &Connection) -> Attempt<Vec<Attempt<StreamRow>>> {
    let mut select = conn.prepare(STREAM_COLUMNS)?;
    let rows = select.query_map([], |row| Ok(stream_row(row)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Updates an existing row of `streams`.
pub(crate) fn update_stream(conn: &Connection, row: &StreamRow) -> Attempt<()> {
    conn.prepare_cached(
        "UPDATE streams SET start = ?2, folded = ?3, reclaimed = ?4, bytes = ?5, last_ts = ?6, dropped = ?7, \
         compacted_to = ?8, dropped_at = ?9, crc = ?10 WHERE id = ?1",
    )?
    .execute(params![
        row.id,
        row.start as i64,
        row.folded as i64,
        row.reclaimed as i64,
        row.bytes as i64,
        row.last_ts as i64,
        row.dropped,
        row.compacted_to as i64,
        row.dropped_at as i64,
        row.crc()
    ])?;
    Ok(())
}

/// Calls `each` with the commits after `after`, in order, at most `commits_max`, until it breaks.
pub(crate) fn records(
    conn: &Connection,
    after: u64,
    commits_max: usize,
    mut each: impl FnMut(u64, u64, CommitSummary) -> Attempt<ControlFlow<()>>,
) -> Attempt<()> {
    let mut select =
        conn.prepare_cached("SELECT c, seq, runs FROM commits WHERE c > ?1 ORDER BY c LIMIT ?2")?;
    let limit = i64::try_from(commits_max).unwrap_or(i64::MAX);
    let mut rows = select.query(params![i64::try_from(after).unwrap_or(i64::MAX), limit])?;
    while let Some(row) = rows.next()? {
        let (c, seq) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
        let record = codec::decode_record(c, seq, row.get_ref(2)?.as_blob().unwrap_or_default());
        if each(c, seq, record.map_err(SqliteFault::malformed("commits", c))?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Returns the newest commit. Its row is never deleted, so that no commit number and no seq is given twice.
pub(crate) fn last_commit(conn: &Connection) -> Attempt<u64> {
    let mut select = conn.prepare_cached("SELECT max(c) FROM commits")?;
    Ok(select.query_row([], |row| row.get::<_, Option<i64>>(0))?.unwrap_or(0) as u64)
}

pub(crate) fn first_commit(conn: &Connection) -> Attempt<Option<u64>> {
    let mut select = conn.prepare_cached("SELECT min(c) FROM commits")?;
    Ok(select.query_row([], |row| row.get::<_, Option<i64>>(0))?.map(|c| c as u64))
}

/// Loads the whole index. Must run inside a single transaction.
pub(crate) fn load(conn: &Connection) -> Attempt<Index> {
    let mut index = Index::new();
    let mut select = conn.prepare(STREAM_COLUMNS)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        index.take_row(stream_row(row)?);
    }
    records(conn, 0, usize::MAX, |c, seq, record| {
        index.next_seq = index.next_seq.max(seq);
        // The stream rows above are newer than this commit: only its runs are new.
        index.apply(c, &CommitSummary { runs: record.runs, ..CommitSummary::default() }, Vec::new());
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(index)
}

/// The commits of other processes since `after`, with the rows of the streams that they touched.
pub(crate) struct NewCommits {
    pub(crate) commits: Vec<(u64, CommitSummary, Vec<StreamRow>)>,
}

/// Returns `None` if commits are missing in between: then the whole index must be loaded again. Must run inside a
/// single transaction.
pub(crate) fn news(conn: &Connection, after: u64) -> Attempt<Option<NewCommits>> {
    let mut commits = Vec::new();
    let mut complete = true;
    records(conn, after, usize::MAX, |c, _, record| {
        if c != after + 1 + commits.len() as u64 {
            complete = false;
            return Ok(ControlFlow::Break(()));
        }
        let rows: Attempt<Vec<_>> =
            record.touched.iter().filter_map(|id| stream_by_id(conn, *id).transpose()).collect();
        commits.push((c, record, rows?));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(complete.then_some(NewCommits { commits }))
}
