//! The rows of attempts of one cursor: which are stored, and which are out of date.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::window::Window;
use crate::groups::group::CursorRef;

/// Bytes of a row of attempts without its value, with names of the largest size.
const ROW_BYTES: usize = 1 << 10;

#[derive(Debug, Default)]
pub(crate) struct AttemptRows {
    /// Offsets whose row is out of date.
    dirty: BTreeSet<u64>,
    stored: BTreeSet<u64>,
}

impl AttemptRows {
    pub(super) fn restore(stored: BTreeSet<u64>, committed: u64) -> AttemptRows {
        // A crash may have left rows of events that are done: the next flush deletes them.
        AttemptRows { dirty: stored.range(..=committed).copied().collect(), stored }
    }

    /// Marks all stored rows to be deleted, because the cursor is moved.
    pub(super) fn delete_all(&mut self) {
        self.dirty = self.stored.clone();
    }

    /// Notes that an event's history has changed; `needs_row` says whether it needs a row now.
    pub(super) fn changed(&mut self, offset: u64, needs_row: bool) {
        if needs_row || self.stored.contains(&offset) {
            self.dirty.insert(offset);
        }
    }

    /// Returns the rows that must be written (`Some`) or deleted (`None`), at most `rows_max` rows and `bytes_max`
    /// bytes; the rest stays dirty.
    pub(super) fn take_changes(
        &mut self,
        window: &Window,
        rows_max: usize,
        bytes_max: usize,
    ) -> Vec<(u64, Option<Bytes>)> {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while changes.len() < rows_max
            && let Some(offset) = self.dirty.first().copied()
        {
            let row = window.get(offset).filter(|open| open.needs_row()).map(|open| open.row().encode());
            if row.is_some() || self.stored.contains(&offset) {
                bytes += ROW_BYTES + row.as_ref().map_or(0, Bytes::len);
                if bytes > bytes_max {
                    break;
                }
                match &row {
                    Some(_) => self.stored.insert(offset),
                    None => self.stored.remove(&offset),
                };
                changes.push((offset, row));
            }
            self.dirty.remove(&offset);
        }
        changes
    }

    /// Takes back changes that were not written. The rows may not be stored at all: deleting a missing row does no
    /// harm.
    pub(super) fn put_back(&mut self, offsets: Vec<u64>) {
        self.stored.extend(&offsets);
        self.dirty.extend(offsets);
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Checks that each of these offsets, which need a row, has one or gets one.
    pub(super) fn check(&self, at: CursorRef, needed: impl Iterator<Item = u64>) {
        for offset in needed {
            let kept = self.stored.contains(&offset) || self.dirty.contains(&offset);
            assert!(kept, "the attempts of offset {offset} of {at:?} are never written");
        }
    }

    pub(super) fn stored(&self) -> impl Iterator<Item = u64> + '_ {
        self.stored.iter().copied()
    }
}
