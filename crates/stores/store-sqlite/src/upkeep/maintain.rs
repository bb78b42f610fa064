//! Housekeeping in slices: what is due, in which order, and what a commit does by itself if nobody calls `maintain`.

use millrace_store::{Maintained, StoreError};

use crate::store_core::StoreCore;
use crate::writing::commit::HOUSEKEEPING;
use crate::writing::transaction::{Change, Writer};

/// A commit folds by itself when this many times the usual amount is unfolded.
const FOLD_OVERDUE_TIMES: u64 = 2;

enum DueWork {
    Quarantine,
    Fold,
    Reclaim,
    Purge,
    Prune,
    ForgetTombstones,
}

impl StoreCore {
    fn next_work(&self, writer: &Writer) -> Option<DueWork> {
        if self.quarantine.is_waiting() {
            Some(DueWork::Quarantine)
        } else if writer.fold.is_some() || self.fold_is_due(1) {
            Some(DueWork::Fold)
        } else if !self.index().reclaimable.is_empty() {
            Some(DueWork::Reclaim)
        } else if !self.index().purgeable.is_empty() {
            Some(DueWork::Purge)
        } else if self.prunable(writer) > writer.pruned_through {
            Some(DueWork::Prune)
        } else if writer.forgets_tombstones {
            Some(DueWork::ForgetTombstones)
        } else {
            None
        }
    }

    pub(crate) fn maintain_slice(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        let mut writer = self.writer();
        let rows_max = rows_max.max(1);
        if let Some(reason) = self.locks.poisoned() {
            return Err(StoreError::Poisoned(reason.into()));
        }
        // Commits that wait for the tables bring work with them: without them it could not be told what is left.
        let settled = self.settle_with(&mut writer);
        let worked = settled.and_then(|()| self.work_slice(&mut writer, rows_max));
        if let Ok(rows) = &worked {
            // When streams interleave, every deleted event dirties about a page of its own; folded rows are small.
            writer.wal_bytes += *rows as u64 * 512;
        }
        // Also when there was no room for the work: a log that can start over needs no room.
        let tended = match &worked {
            Err(error) if !error.may_be_retried() => Ok(()),
            _ => self.tend_wal(&mut writer),
        };
        let rows = worked?;
        tended?;
        Ok(Maintained { rows, more: self.next_work(&writer).is_some() })
    }

    fn work_slice(&self, writer: &mut Writer, rows_max: usize) -> Result<usize, StoreError> {
        match self.next_work(writer) {
            None => Ok(0),
            Some(DueWork::Quarantine) => {
                let rows = self.transact(writer, HOUSEKEEPING, |writer| {
                    Ok((self.quarantine.record(&writer.conn, rows_max)?, Change::default()))
                })?;
                self.quarantine.set_recorded(&rows);
                Ok(rows.len())
            }
            Some(DueWork::Fold) => self.fold_slice(writer, rows_max),
            Some(DueWork::Reclaim) => self.reclaim_slice(writer, rows_max),
            Some(DueWork::Purge) => self.purge_slice(writer, rows_max),
            Some(DueWork::Prune) => self.prune_slice(writer, rows_max),
            Some(DueWork::ForgetTombstones) => self.forget_tombstones_slice(writer, rows_max),
        }
    }

    /// Limits memory and WAL even if `maintain` is never called.
    pub(crate) fn upkeep_after_commit(&self, writer: &mut Writer) -> Result<(), StoreError> {
        if self.fold_is_due(FOLD_OVERDUE_TIMES) {
            self.fold_slice(writer, usize::MAX)?;
        }
        self.tend_wal(writer)
    }
}
