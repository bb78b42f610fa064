//! Checks the rows of `commits`: each whole, without gaps, and each beginning where the one before ended.

use std::collections::BTreeMap;

use millrace_model::Findings;
use rusqlite::Connection;

use super::RESTORE;
use super::streams::StreamRows;
use crate::error::Attempt;
use crate::reading::index::StoredRun;
use crate::rows::codec;

/// The unfolded events, as `commits` lists them.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// By stream id, in order of their commits.
    pub(super) runs: BTreeMap<i64, Vec<StoredRun>>,
    /// The seq that the next event will get.
    pub(super) next_seq: u64,
}

pub(super) fn read(conn: &Connection, streams: &StreamRows, findings: &mut Findings) -> Attempt<Logged> {
    let mut logged = Logged { next_seq: 1, ..Logged::default() };
    let mut select = conn.prepare("SELECT c, seq, runs FROM commits ORDER BY c")?;
    let mut rows = select.query([])?;
    let mut before: Option<u64> = None;
    while let Some(row) = rows.next()? {
        let (c, seq) = (row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64);
        if let Some(last) = before.replace(c).filter(|last| last.checked_add(1) != Some(c)) {
            let place = format!("table commits, between rows {last} and {c}");
            findings.problem(place, "rows are missing", RESTORE);
        }
        let place = format!("table commits, row {c}");
        let Ok(record) = codec::decode_record(c, seq, row.get_ref(2)?.as_blob().unwrap_or_default()) else {
            let what = "fails its checksum: the store cannot be opened with it";
            findings.problem(place, what, RESTORE);
            continue;
        };
        if seq < logged.next_seq {
            let what = format!("begins at place {seq}, which is taken: {} is the next free", logged.next_seq);
            findings.problem(place, what, RESTORE);
        }
        logged.next_seq = logged.next_seq.max(seq);
        for (stream, run) in record.runs {
            logged.next_seq = logged.next_seq.max(run.seq.saturating_add(run.count));
            // A stream without a row was dropped and is gone; folded events are found through `loc`.
            if streams.get(&stream).is_some_and(|row| run.offset >= row.folded) {
                logged.runs.entry(stream).or_default().push(run);
            }
        }
    }
    Ok(logged)
}
