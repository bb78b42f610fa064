//! Checks the rows of `streams` and `ids`: readable, and each consistent in itself.

use std::collections::BTreeMap;

use millrace_model::Findings;
use rusqlite::Connection;

use super::RESTORE;
use crate::dedupe::tombstones;
use crate::error::{Attempt, SqliteFault};
use crate::opening::load;
use crate::reading::index::StreamRow;
use crate::rows::codec;

/// The readable rows of `streams`, by id.
pub(super) type StreamRows = BTreeMap<i64, StreamRow>;

pub(super) fn read(conn: &Connection, findings: &mut Findings) -> Attempt<StreamRows> {
    let mut rows = StreamRows::new();
    for row in load::stream_rows(conn)? {
        match row {
            Ok(row) => {
                bounds(&row, findings);
                rows.insert(row.id, row);
            }
            Err(SqliteFault::Malformed(_, id)) => {
                findings.problem(
                    format!("table streams, row {id}"),
                    "fails its checksum, or names no topic and partition",
                    RESTORE,
                );
            }
            Err(fault) => return Err(fault),
        }
    }
    twins(&rows, findings);
    Ok(rows)
}

fn bounds(row: &StreamRow, findings: &mut Findings) {
    let place = format!("table streams, row {} ({})", row.id, row.stream);
    // A dropped stream is reclaimed to its end, wherever it started.
    let passed = !row.dropped && row.reclaimed > row.start;
    if row.reclaimed == 0 || passed || row.reclaimed > row.folded {
        let what = format!(
            "rows below {} are said to be deleted, but the stream starts at {} and is folded up to {}",
            row.reclaimed, row.start, row.folded
        );
        findings.problem(place, what, RESTORE);
    }
}

fn twins(rows: &StreamRows, findings: &mut Findings) {
    let mut seen = BTreeMap::new();
    for row in rows.values().filter(|row| !row.dropped) {
        if let Some(other) = seen.insert(&row.stream, row.id) {
            let what = format!("is there twice, as rows {other} and {}", row.id);
            findings.problem(format!("table streams, {}", row.stream), what, RESTORE);
        }
    }
}

/// Checks the saved hashes. A damaged row means forgotten ids: events with the same ids could then be stored twice.
pub(super) fn ids(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    let mut select = conn.prepare("SELECT n, count, last_ts, hashes FROM ids ORDER BY n")?;
    let mut rows = select.query([])?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        let (n, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        ids.clear();
        let last_ts = row.get::<_, i64>(2)? as u64;
        let decoded = codec::decode_ids(row.get_ref(3)?.as_blob().unwrap_or_default(), last_ts, &mut ids);
        if decoded.is_err() || ids.len() as u64 != count as u64 {
            let what = format!("fails its checksum: {count} ids are forgotten by deduplication");
            findings.problem(
                format!("table ids, row {n}"),
                what,
                "an event published again with one of these ids within its window is stored twice; a backup has them",
            );
        }
    }
    Ok(())
}

/// Checks the ids of deleted events in the same way. A store of an older version has no such table.
pub(super) fn gone_ids(conn: &Connection, findings: &mut Findings) -> Attempt<()> {
    let there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'gone_ids')";
    if !conn.query_row(there, [], |row| row.get(0))? {
        return Ok(());
    }
    for seq in tombstones::damaged(conn)? {
        findings.problem(
            format!("table gone_ids, row {seq}"),
            "fails its checksum: the id is forgotten by deduplication",
            "an event published again with this id within its window is stored twice; a backup has it",
        );
    }
    Ok(())
}
