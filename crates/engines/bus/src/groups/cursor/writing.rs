//! Writing a cursor: its row and its rows of tries, and taking them back when the store refuses the batch.

use bytes::Bytes;
use millrace_model::{AHEAD_MAX, AttemptRow, Bitmap, CursorRow, Offset, Timestamp};

use super::{Cursor, Open};
use crate::delivery::dead_letter::kept;

/// Contents of the flush under way, in case the store refuses it. Dropped when the flush is durable, and when the
/// cursor is moved meanwhile.
#[derive(Debug, Default)]
pub(crate) struct InFlush {
    /// Events that become dead letters. They count as done from the moment their letters are being written.
    pub(crate) buried: Vec<(u64, Open)>,
    pub(crate) tries: Vec<u64>,
}

/// Bytes of a row of tries without its value, with names of the largest size.
const TRY_BYTES: usize = 1 << 10;

impl Cursor {
    /// Returns the cursor's row as it is to be written at `now`.
    pub(crate) fn row(&self, now: Timestamp) -> CursorRow {
        let committed = self.committed();
        let mut ahead = Bitmap::default();
        // Not further: acked offsets lie within this bound, and offsets skipped beyond it are skipped again.
        let furthest = committed.0 + 1 + AHEAD_MAX;
        let end = self.read_next.min(furthest);
        let busy = self.open.len() + self.fetched.len();
        if busy as u64 != self.read_next - 1 - committed.0 {
            // Sent offsets lie below fetched ones, so both lists in a row are in order, and every offset between two
            // entries is done.
            let fetched = self.fetched.iter().map(|fetched| fetched.event.offset.0);
            let mut lowest = committed.0 + 1;
            for offset in self.open.keys().copied().chain(fetched).chain([end]) {
                for done in lowest..offset.min(end) {
                    ahead.insert(done - committed.0 - 1);
                }
                lowest = offset + 1;
            }
        }
        for done in self.prior.done.range(self.read_next..).take_while(|done| **done < furthest) {
            ahead.insert(done - committed.0 - 1);
        }
        let updated = match &self.flushed {
            Some(row) if row.committed == committed => row.updated,
            _ => Some(now),
        };
        CursorRow { committed, delivered: self.delivered_through(), ahead, updated }
    }

    /// Returns when the commit of the row that `note_flushed` saw last was first written.
    pub(crate) fn noted_since(&self) -> Option<Timestamp> {
        self.flushed.as_ref().and_then(|row| row.updated)
    }

    /// Returns the offset up to which every event was sent since the server started, or is done.
    fn delivered_through(&self) -> Offset {
        // Only in a sticky group may an event wait while later ones are sent.
        let unsent = self.open.iter().filter(|(_, open)| self.keyed.is_some() && open.last.is_none());
        let first = unsent.map(|(offset, _)| *offset).next();
        Offset(first.map_or(self.sent_through, |first| first - 1))
    }

    /// Returns the rows of tries that must be written (`Some`) or deleted (`None`), at most `rows_max` rows and
    /// `bytes_max` bytes; the rest stays dirty.
    pub(crate) fn take_try_changes(
        &mut self,
        rows_max: usize,
        bytes_max: usize,
    ) -> Vec<(u64, Option<Bytes>)> {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while changes.len() < rows_max
            && let Some(offset) = self.tries_dirty.first().copied()
        {
            let row =
                self.open.get(&offset).filter(|open| needs_row(open)).map(|open| try_row(open).encode());
            if row.is_some() || self.tries_stored.contains(&offset) {
                bytes += TRY_BYTES + row.as_ref().map_or(0, Bytes::len);
                if bytes > bytes_max {
                    break;
                }
                match &row {
                    Some(_) => self.tries_stored.insert(offset),
                    None => self.tries_stored.remove(&offset),
                };
                changes.push((offset, row));
            }
            self.tries_dirty.remove(&offset);
        }
        changes
    }

    /// Remembers the row as written. Returns whether it differs from the row before.
    pub(crate) fn note_flushed(&mut self, row: &CursorRow) -> bool {
        let changed = self.flushed.as_ref() != Some(row);
        self.implicit = self.implicit.split_off(&(row.committed.0 + 1));
        self.flushed = Some(row.clone());
        changed
    }

    /// Takes back the flush under way, which was not written: nothing in it is done. Returns how many dead letters it
    /// held.
    pub(crate) fn put_back(&mut self) -> usize {
        let InFlush { buried, tries } = std::mem::take(&mut self.in_flush);
        let letters = buried.len();
        for (offset, open) in buried.into_iter().rev() {
            self.requeue_key(offset, open.key);
            self.open.insert(offset, open);
            self.to_dead_letter.push_front(offset);
            self.tries_changed(offset);
        }
        // These rows may not be stored at all: deleting a missing row does no harm.
        self.tries_stored.extend(&tries);
        self.tries_dirty.extend(tries);
        self.flushed = None;
        letters
    }

    pub(crate) fn has_try_changes(&self) -> bool {
        !self.tries_dirty.is_empty()
    }

    pub(crate) fn stored_tries(&self) -> impl Iterator<Item = u64> + '_ {
        self.tries_stored.iter().copied()
    }
}

/// Whether the event needs a row of tries. Most events do not: they are done after their first delivery.
pub(super) fn needs_row(open: &Open) -> bool {
    open.attempts_ended() != 0 || open.not_before.is_some() || open.reason.is_some()
}

/// Only attempts that ended are written: a delivery that a crash cuts short must not count.
fn try_row(open: &Open) -> AttemptRow {
    AttemptRow {
        attempts: open.attempts_ended(),
        not_before: open.not_before,
        reason: open.reason.as_deref().map(kept),
    }
}
