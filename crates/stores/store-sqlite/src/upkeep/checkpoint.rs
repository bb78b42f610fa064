//! Checkpoints: how the content of the WAL gets into the database, and when the WAL starts over.
//!
//! When the WAL has `wal_bytes`, the checkpointer's thread (`checkpointer.rs`) copies it while the writer goes on. When
//! the thread has finished, the writer takes the write lock (`lock_folder.rs`) and copies the little that was appended
//! meanwhile, so that the next commit starts the WAL over at its beginning. A WAL of `CHECKPOINT_OVERDUE_TIMES` that
//! size grows faster than the disk can copy: then the writer waits for the thread.

use std::sync::atomic::Ordering::Relaxed;

use millrace_model::Durability;
use millrace_store::StoreError;

use crate::error::{Attempt, SqliteFault};
use crate::store_core::StoreCore;
use crate::upkeep::checkpointer::{self, CopyStage};
use crate::writing::progress::WriteStep;
use crate::writing::transaction::Writer;

/// At this multiple of `wal_bytes` the writer waits for the checkpointer. A WAL that has grown larger because of a long
/// snapshot is truncated to this size when it starts over.
pub(crate) const CHECKPOINT_OVERDUE_TIMES: u64 = 4;

impl StoreCore {
    /// Checkpoints the WAL if it is large enough. Called after everything that this handle writes.
    pub(crate) fn tend_wal(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let wal_bytes = self.options.wal_bytes;
        if writer.wal_bytes < wal_bytes {
            return Ok(());
        }
        let overdue = writer.wal_bytes >= wal_bytes.saturating_mul(CHECKPOINT_OVERDUE_TIMES);
        let stage = if overdue {
            let _working = self.progress.begin(WriteStep::Copying);
            self.checkpointer.wait_copied()
        } else {
            self.checkpointer.stage()
        };
        match stage {
            CopyStage::Requested => return Ok(()),
            CopyStage::Idle if !overdue && self.checkpointer.request_copy() => return Ok(()),
            CopyStage::Idle | CopyStage::Copied | CopyStage::Ended => {}
        }
        let checkpointed = self.checkpoint(writer);
        self.checkpointer.set_idle();
        checkpointed.map_err(|fault| match fault.left_nothing() {
            Ok(error) => {
                // All of the log is still there. The next attempt comes when the log has grown as much again.
                writer.wal_bytes /= 2;
                error
            }
            Err(fault) => self.poison(writer, fault),
        })
    }

    /// Copies the rest of the WAL while this handle has the write lock, so that nobody appends meanwhile and the WAL
    /// can start over at its beginning. Does not wait for readers: frames that a reader still needs stay for the next
    /// time.
    fn checkpoint(&self, writer: &mut Writer) -> Attempt<()> {
        let _working = self.progress.begin(WriteStep::WriteLock);
        let _write_lock = self.locks.write_lock().map_err(SqliteFault::from)?;
        self.progress.set(WriteStep::Checkpoint);
        if self.locks.poisoned().is_some() {
            return Ok(());
        }
        // At this level SQLite syncs the WAL before copying it, and the database before the WAL may be overwritten.
        writer.sync_level(Durability::Fsync)?;
        let pass = checkpointer::pass(&writer.conn)?;
        let emptied = !pass.busy && pass.copied == pass.frames;
        self.wal_held.store(!pass.busy && pass.copied < pass.frames, Relaxed);
        writer.wal_bytes = if emptied { 0 } else { writer.wal_bytes / 2 };
        Ok(())
    }
}

impl Drop for StoreCore {
    /// Closing the writer's connection, if it is the last one of any process, copies the WAL into the database and
    /// removes it.
    fn drop(&mut self) {
        self.checkpointer.stop();
        let poisoned = self.locks.poisoned().is_some();
        let writer = self.writer.get_mut();
        // That copy needs the syncs of a checkpoint: without them the WAL is left in place.
        if poisoned || writer.sync_level(Durability::Fsync).is_err() {
            writer.leave_the_wal();
        }
    }
}
