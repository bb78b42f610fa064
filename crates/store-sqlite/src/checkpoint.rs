//! Checkpoints: the writer itself copies the WAL into the database, so that the WAL cannot outgrow it.

use millrace_model::Durability;
use millrace_store::StoreError;

use crate::error::{Attempt, Fault};
use crate::store::SqliteStore;
use crate::write::Writer;

impl SqliteStore {
    /// Once this handle has written about `wal_bytes` since the WAL was last emptied.
    pub(crate) fn checkpoint_from(&self, writer: &mut Writer, wal_bytes: u64) -> Result<(), StoreError> {
        if writer.wal_bytes < wal_bytes {
            return Ok(());
        }
        self.checkpoint(writer).map_err(|fault| self.poison(writer, &fault))
    }

    /// With the writer's turn, so that nobody appends meanwhile and the WAL can start over at its beginning. Readers are
    /// not waited for: what one of them still needs stays for the next time.
    fn checkpoint(&self, writer: &mut Writer) -> Attempt<()> {
        let _turn = self.locks.turn().map_err(Fault::from)?;
        if self.locks.poisoned().is_some() {
            return Ok(());
        }
        // With syncs off, SQLite would overwrite the database before the WAL is safe.
        writer.sync_level(Durability::Fsync)?;
        let (frames, copied) = {
            let mut checkpoint = writer.conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
            checkpoint.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))?
        };
        writer.wal_bytes = if copied == frames { 0 } else { writer.wal_bytes / 2 };
        Ok(())
    }
}
