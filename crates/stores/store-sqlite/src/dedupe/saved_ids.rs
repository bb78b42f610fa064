//! The dedupe window across restarts: hashes are saved when events are folded (`fold.rs`), and read back when a store
//! is opened. Only ids that are not folded yet, or that another process wrote, are read from the events themselves.
//!
//! The newest `dedupe_ids_max` ids are remembered, whatever the times of their events are. Times only matter at an
//! append, which brings its own time: a single event from a clock that was a month ahead must not make the store forget
//! the ids of a day.

use millrace_store::StoreError;
use rusqlite::{Connection, OptionalExtension, params};

use crate::dedupe::hash::HashKey;
use crate::dedupe::recent_ids::Dedupe;
use crate::dedupe::tombstones;
use crate::error::{Attempt, SqliteFault};
use crate::options::SqliteOptions;
use crate::reading::index::Index;
use crate::rows::loc::Loc;
use crate::rows::{codec, row};
use crate::store_core::StoreCore;
use crate::writing::commit::HOUSEKEEPING;
use crate::writing::transaction::{Change, Writer};

/// Returns the store's hash key, and draws it the first time. Must run where writing is allowed.
pub(crate) fn hash_key(conn: &Connection) -> Attempt<HashKey> {
    let key = stored_key(conn)?.unwrap_or_else(HashKey::draw);
    // Also rewrites a key from before checksums.
    conn.execute(
        "INSERT INTO meta (key, value) VALUES ('hash_key', ?1) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value <> excluded.value",
        params![codec::encode_key(&key.0)],
    )?;
    Ok(key)
}

/// Returns the stored hash key. A damaged or missing key is an error: no saved hash would match, and every id would be
/// stored again.
pub(crate) fn stored_key(conn: &Connection) -> Attempt<Option<HashKey>> {
    let damaged = || SqliteFault::DamagedRow("meta", "hash_key".to_owned());
    let mut select = conn.prepare("SELECT value FROM meta WHERE key = 'hash_key'")?;
    let stored: Option<Vec<u8>> = select.query_row([], |row| row.get(0)).optional()?;
    match stored {
        Some(value) => codec::decode_key(&value).map(|key| Some(HashKey(key))).map_err(|_| damaged()),
        None if conn.query_row("SELECT EXISTS (SELECT 1 FROM ids)", [], |row| row.get(0))? => Err(damaged()),
        None => Ok(None),
    }
}

pub(crate) fn load(
    conn: &Connection,
    key: HashKey,
    index: &Index,
    options: &SqliteOptions,
) -> Attempt<Dedupe> {
    let mut dedupe = Dedupe::new(key, options.dedupe_ids_max);
    let mut ids = saved_ids(conn, options)?;
    for (first, last) in unfolded_stretches(index) {
        read_ids(conn, index, key, first, last, options.is_copy, &mut ids)?;
    }
    ids.sort_unstable_by_key(|(_, seq)| *seq);
    let kept = &ids[ids.len().saturating_sub(options.dedupe_ids_max)..];
    dedupe.reserve(kept.len());
    for (hash, seq) in kept {
        dedupe.remember(*hash, *seq);
    }
    dedupe.next_seq = index.next_seq;
    Ok(dedupe)
}

/// Returns the ranges of seqs of unfolded events with brought ids, as few as possible: runs of streams interleave.
fn unfolded_stretches(index: &Index) -> Vec<(u64, u64)> {
    let runs = index.live().flat_map(|state| &state.runs);
    let mut ranges: Vec<(u64, u64)> =
        runs.filter(|run| run.brought > 0).map(|run| (run.seq, run.seq + run.count - 1)).collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, merged| {
        let touches = next.0 <= merged.1 + 1;
        if touches {
            merged.1 = merged.1.max(next.1);
        }
        touches
    });
    ranges
}

/// Returns the saved pairs of hash and seq. Skips a row that fails its checksum: an id may then be stored twice, but
/// the store opens. A copy of a journal does not open, because it can be made anew.
fn saved_ids(conn: &Connection, options: &SqliteOptions) -> Attempt<Vec<(u64, u64)>> {
    let mut ids = Vec::new();
    let mut select = conn.prepare("SELECT last_ts, hashes FROM ids")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let before = ids.len();
        let bytes = row.get_ref(1)?.as_blob().unwrap_or_default();
        match codec::decode_ids(bytes, row.get::<_, i64>(0)? as u64, &mut ids) {
            Ok(()) => {}
            Err(_) if options.is_copy => return Err(SqliteFault::DamagedRow("ids", "hashes".to_owned())),
            Err(_) => ids.truncate(before),
        }
    }
    Ok(ids)
}

/// Saves the ids of `locs` inside the transaction that folds them: opening the store need not read their events then.
pub(crate) fn save_ids(writer: &Writer, dedupe: &Dedupe, locs: &[Loc]) -> Attempt<()> {
    let pieces = locs.iter().filter(|loc| loc.brought > 0).flat_map(|loc| &loc.pieces);
    let ids: Vec<(u64, u64)> =
        pieces.flat_map(|piece| dedupe.within(piece.seq, piece.seq + piece.count)).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let last_ts = locs.iter().map(|loc| loc.last_ts).max().unwrap_or(0);
    let hashes = codec::encode_ids(&ids, last_ts);
    writer
        .conn
        .prepare_cached("INSERT INTO ids (count, last_ts, hashes) VALUES (?1, ?2, ?3)")?
        .execute(params![ids.len() as i64, last_ts as i64, hashes])?;
    Ok(())
}

/// Adds hash and seq of events, and of the ids that `tombstones.rs` keeps of deleted events. Skips rows that cannot be read:
/// an id may then be stored twice, but otherwise nothing could be stored.
fn read_ids(
    conn: &Connection,
    index: &Index,
    key: HashKey,
    first: u64,
    last: u64,
    is_copy: bool,
    ids: &mut Vec<(u64, u64)>,
) -> Attempt<()> {
    if is_copy {
        row::check(conn, first, last)?;
    }
    let mut at = first;
    while at <= last {
        match read_ids_from(conn, index, key, &mut at, last, ids) {
            Err(fault) if fault.is_damaged_page() && !is_copy => at += 1,
            read => {
                read?;
                break;
            }
        }
    }
    let left = match tombstones::within(conn, first, last) {
        Err(fault) if fault.is_damaged_page() && !is_copy => Vec::new(),
        left => left?,
    };
    for tombstone in left {
        let state = index.by_id(tombstone.stream).filter(|state| !state.row.dropped);
        ids.extend(state.map(|state| (key.of_id(&state.row.stream.topic, &tombstone.id), tombstone.seq)));
    }
    Ok(())
}

/// Reads ids from `at` on, and moves `at` past each row that was read. Rows of dropped streams are skipped.
fn read_ids_from(
    conn: &Connection,
    index: &Index,
    key: HashKey,
    at: &mut u64,
    last: u64,
    ids: &mut Vec<(u64, u64)>,
) -> Attempt<()> {
    // Selects all rows, not only those with brought ids: otherwise each retry would start far before the damaged row
    // again.
    let mut select = conn.prepare_cached(
        "SELECT seq, stream, id, brought FROM events WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq",
    )?;
    let mut rows = select.query(params![*at as i64, last as i64])?;
    while let Some(row) = rows.next()? {
        let seq = row.get::<_, i64>(0)? as u64;
        *at = seq;
        if row.get::<_, i64>(3)? != 1 {
            *at = seq + 1;
            continue;
        }
        let state = index.by_id(row.get(1)?).filter(|state| !state.row.dropped);
        if let (Some(state), Some(Some(id))) = (state, row::read_id(row.get_ref(2)?)) {
            ids.push((key.of_id(&state.row.stream.topic, &id), seq));
        }
        *at = seq + 1;
    }
    Ok(())
}

impl StoreCore {
    /// Reads the ids that other processes wrote. Must run inside the write transaction, after the index has caught up.
    pub(crate) fn dedupe_catch_up(&self, writer: &mut Writer) -> Attempt<()> {
        let (key, first) = {
            let dedupe = self.dedupe();
            (dedupe.key(), dedupe.next_seq)
        };
        let mut ids = Vec::new();
        let next_seq = {
            let index = self.index();
            if first >= index.next_seq {
                return Ok(());
            }
            read_ids(
                &writer.lookups,
                &index,
                key,
                first,
                index.next_seq - 1,
                self.options.is_copy,
                &mut ids,
            )?;
            index.next_seq
        };
        ids.sort_unstable_by_key(|(_, seq)| *seq);
        let mut dedupe = self.dedupe();
        for (hash, seq) in ids {
            dedupe.remember(hash, seq);
        }
        dedupe.next_seq = next_seq;
        Ok(())
    }

    /// Deletes saved hashes beyond `dedupe_ids_max`. Must run inside a write transaction.
    pub(crate) fn forget_old_ids(&self, writer: &Writer) -> Attempt<()> {
        let mut select = writer.conn.prepare_cached("SELECT n, count FROM ids ORDER BY n DESC")?;
        let mut rows = select.query([])?;
        let (mut ids, mut last_kept) = (0, i64::MAX);
        while let Some(row) = rows.next()? {
            if ids >= self.options.dedupe_ids_max {
                break;
            }
            last_kept = row.get(0)?;
            ids += row.get::<_, i64>(1)? as usize;
        }
        drop(rows);
        writer.conn.prepare_cached("DELETE FROM ids WHERE n < ?1")?.execute([last_kept])?;
        Ok(())
    }

    /// Deletes a slice of the ids of deleted events that no remembered hash leads to any more. Returns how many rows
    /// were deleted.
    pub(crate) fn forget_tombstones_slice(
        &self,
        writer: &mut Writer,
        rows_max: usize,
    ) -> Result<usize, StoreError> {
        let rows = self.transact(writer, HOUSEKEEPING, |writer| {
            let first_seq = self.dedupe().first_seq();
            let rows = tombstones::forget(&writer.conn, first_seq, rows_max)?;
            Ok((rows, Change::default()))
        })?;
        writer.forgets_tombstones = rows == rows_max;
        Ok(rows)
    }
}
