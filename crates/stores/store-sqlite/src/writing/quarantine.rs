//! Events that could not be read back: reported to readers at once, recorded in a table by the next housekeeping.

use std::collections::BTreeMap;

use millrace_model::Offset;
use parking_lot::Mutex;
use rusqlite::{Connection, params};

use crate::error::Attempt;

/// How many findings may wait to be recorded. Further ones are still reported to readers, and found again by the next
/// read.
const WAITING_MAX: usize = 10_000;

/// An event that failed its checksum or is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// The event's position in table `events`.
    pub seq: u64,
    /// The stream's id in table `streams`.
    pub stream: i64,
    pub offset: Offset,
    pub reason: String,
}

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    state: Mutex<QuarantineState>,
}

#[derive(Debug, Default)]
struct QuarantineState {
    waiting: BTreeMap<u64, Quarantined>,
    /// Findings that this handle has recorded, so that not every read records them again.
    recorded: BTreeMap<u64, ()>,
}

impl Quarantine {
    pub(crate) fn report(&self, found: Quarantined) {
        let mut state = self.state.lock();
        if state.waiting.len() < WAITING_MAX && !state.recorded.contains_key(&found.seq) {
            state.waiting.insert(found.seq, found);
        }
    }

    pub(crate) fn knows(&self, seq: u64) -> bool {
        let state = self.state.lock();
        state.waiting.contains_key(&seq) || state.recorded.contains_key(&seq)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    /// Records findings inside a write transaction. Returns the seqs written, for [`Quarantine::set_recorded`].
    pub(crate) fn record(&self, conn: &Connection, rows_max: usize) -> Attempt<Vec<u64>> {
        let found: Vec<Quarantined> = self.state.lock().waiting.values().take(rows_max).cloned().collect();
        let mut insert = conn.prepare_cached(
            "INSERT INTO quarantine (seq, stream, offset, reason) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (seq) DO NOTHING",
        )?;
        for one in &found {
            insert.execute(params![one.seq as i64, one.stream, one.offset.0 as i64, one.reason])?;
        }
        Ok(found.iter().map(|one| one.seq).collect())
    }

    /// Marks findings as recorded. Must be called after that transaction was committed.
    pub(crate) fn set_recorded(&self, rows: &[u64]) {
        let mut state = self.state.lock();
        for seq in rows {
            state.waiting.remove(seq);
            if state.recorded.len() < WAITING_MAX {
                state.recorded.insert(*seq, ());
            }
        }
    }

    pub(crate) fn recorded(&self, conn: &Connection) -> Attempt<Vec<Quarantined>> {
        let mut select =
            conn.prepare_cached("SELECT seq, stream, offset, reason FROM quarantine ORDER BY seq")?;
        let rows = select.query_map([], |row| {
            Ok(Quarantined {
                seq: row.get::<_, i64>(0)? as u64,
                stream: row.get(1)?,
                offset: Offset(row.get::<_, i64>(2)? as u64),
                reason: row.get(3)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}
