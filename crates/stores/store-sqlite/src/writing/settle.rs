//! Settling: writes commits that are durable in a journal to the tables, many in one transaction.

use millrace_store::StoreError;

use crate::error::SqliteFault;
use crate::store_core::StoreCore;
use crate::writing::copy;
use crate::writing::transaction::Writer;
use crate::writing::unsettled::{Unsettled, Wanted};

/// How often [`StoreCore::settle_with`] begins again: with the commits of an attempt that failed, and with all others.
const PASSES_MAX: usize = 2;

impl StoreCore {
    /// Makes sure that the tables show everything of `wanted` that was confirmed so far.
    pub(crate) fn settle_for(&self, wanted: Wanted<'_>) -> Result<(), StoreError> {
        let is_behind = self.unsettled.lock().has(wanted);
        if is_behind { self.settle() } else { Ok(()) }
    }

    /// Returns whether a commit must wait until others are settled: too much is unsettled, or the last attempt failed, and
    /// the caller has to learn why.
    pub(crate) fn must_settle_first(&self) -> bool {
        let size = self.unsettled.lock().size();
        size.events >= self.options.unsettled_events_max
            || size.bytes >= self.options.unsettled_bytes_max
            || self.settle_signal.has_failed()
    }

    /// Writes everything that waits to the tables.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        self.settle_with(&mut self.writer())
    }

    pub(crate) fn settle_with(&self, writer: &mut Writer) -> Result<(), StoreError> {
        for _ in 0..PASSES_MAX {
            // In a statement of its own: the lock must not be held while the tables are written.
            let next = self.unsettled.lock().begin_settling();
            let Some(unsettled) = next else { break };
            self.write_unsettled(writer, &unsettled)?;
            self.unsettled.lock().settled();
        }
        Ok(())
    }

    fn write_unsettled(&self, writer: &mut Writer, unsettled: &Unsettled) -> Result<(), StoreError> {
        let Some(last) = unsettled.records.last() else { return Ok(()) };
        let written = self.transact_copy(writer, |writer| {
            let (inserted, change) = self.fold_records(writer, &unsettled.records)?;
            copy::save_position(&writer.conn, &last.position)?;
            Ok((inserted, change))
        })?;
        let inserted = written.map_err(|fault| {
            self.note_damage(&fault);
            SqliteFault::unreadable(fault)
        })?;
        self.after_commit(writer, inserted)
    }
}
