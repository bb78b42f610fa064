//! Checkpoints: how the WAL gets into the database, and the rule by which it starts over.
//!
//! From `wal_bytes` on the checkpointer copies beside the writer. When it is through, the writer copies the little that
//! was appended meanwhile, with its turn, so that the next commit starts the WAL over at its beginning. A WAL that reaches
//! `CHECKPOINT_OVERDUE_TIMES` that size is more than the disk can take: then the writer waits for the checkpointer.

use std::sync::atomic::Ordering::Relaxed;

use millrace_model::Durability;
use millrace_store::StoreError;

use crate::checkpointer::{self, Stage};
use crate::error::{Attempt, Fault};
use crate::progress::Step;
use crate::store::SqliteStore;
use crate::write::Writer;

/// Where the writer waits for the copying, in WALs of the usual size. A WAL that has grown larger because of a long
/// snapshot is cut back to this when it starts over.
pub(crate) const CHECKPOINT_OVERDUE_TIMES: u64 = 4;

impl SqliteStore {
    /// After everything this handle writes.
    pub(crate) fn tend_wal(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let wal_bytes = self.options.wal_bytes;
        if writer.wal_bytes < wal_bytes {
            return Ok(());
        }
        let overdue = writer.wal_bytes >= wal_bytes.saturating_mul(CHECKPOINT_OVERDUE_TIMES);
        let stage = if overdue {
            let _working = self.progress.begin(Step::Copying);
            self.checkpointer.finished()
        } else {
            self.checkpointer.stage()
        };
        match stage {
            Stage::Asked => return Ok(()),
            Stage::Idle if !overdue && self.checkpointer.ask() => return Ok(()),
            Stage::Idle | Stage::Copied | Stage::Ended => {}
        }
        let checkpointed = self.checkpoint(writer);
        self.checkpointer.rest();
        checkpointed.map_err(|fault| match fault.wrote_nothing() {
            Some(error) => {
                // All of the log is still there. The next attempt comes when it has grown as much again.
                writer.wal_bytes /= 2;
                error
            }
            None => self.poison(writer, &fault),
        })
    }

    /// With the writer's turn, so that nobody appends meanwhile and the WAL can start over at its beginning. Readers are
    /// not waited for: what one of them still needs stays for the next time.
    fn checkpoint(&self, writer: &mut Writer) -> Attempt<()> {
        let _working = self.progress.begin(Step::Turn);
        let _turn = self.locks.turn().map_err(Fault::from)?;
        self.progress.set(Step::Checkpoint);
        if self.locks.poisoned().is_some() {
            return Ok(());
        }
        // At this level SQLite syncs the WAL before it is copied, and the database before the WAL may be overwritten.
        writer.sync_level(Durability::Fsync)?;
        let pass = checkpointer::pass(&writer.conn)?;
        let emptied = !pass.busy && pass.copied == pass.frames;
        self.wal_held.store(!pass.busy && pass.copied < pass.frames, Relaxed);
        writer.wal_bytes = if emptied { 0 } else { writer.wal_bytes / 2 };
        Ok(())
    }
}

impl Drop for SqliteStore {
    /// The writer's connection, should it be the last one anywhere, empties the WAL and removes it.
    fn drop(&mut self) {
        self.checkpointer.end();
        let poisoned = self.locks.poisoned().is_some();
        let writer = self.writer.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Closing copies the WAL into the database and removes it: only with the syncs of a checkpoint.
        if poisoned || writer.sync_level(Durability::Fsync).is_err() {
            writer.leave_the_wal();
        }
    }
}
