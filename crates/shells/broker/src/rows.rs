//! Rows of other parts of the server (timers of the CQRS loop, its Memory) enter the writer's queue here, beside the
//! engine's batches, and share their syncs.

use millrace_model::{Batch, Op, Timestamp};
use millrace_shell::{RowCommits, RowReply, RowWriteError};

use crate::handle::BrokerShared;
use crate::writer::BatchOrigin;

impl RowCommits for BrokerShared {
    fn submit(&self, batch: Batch, reply: RowReply) -> Result<(), RowWriteError> {
        if let Some(reason) = self.health.storage_failed() {
            return Err(RowWriteError::StorageFailed(reason.to_owned()));
        }
        if self.health.stopping() {
            return Err(RowWriteError::ShuttingDown);
        }
        if adds(&batch)
            && let Some(reason) = self.health.no_space()
        {
            return Err(RowWriteError::NoSpace(reason));
        }
        let pushed = self.backlog.push(&mut vec![(BatchOrigin::RowWriter(reply), batch)]);
        pushed.map_err(|error| RowWriteError::StorageFailed(error.to_string()))?;
        self.inbox.wake_for_the_rest(&self.backlog, &self.settings);
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }
}

/// Returns whether the batch is refused while the disk has too little room. Removals are not: they free space.
fn adds(batch: &Batch) -> bool {
    batch.ops.iter().any(|op| !matches!(op, Op::Delete { .. }))
}
