//! Rows of other parts of the server (timers of the CQRS loop, its Memory, actions of people on handlers) enter the writer's queue here, beside the
//! engine's batches, and share their syncs.

use millrace_model::{Batch, Op, Timestamp};
use millrace_shell::{QueueClosed, RowCommits, RowReply, RowWriteError};

use crate::backlog::BatchOrigin;
use crate::shared::BrokerShared;

impl RowCommits for BrokerShared {
    fn check(&self, ops: &[Op]) -> Result<(), RowWriteError> {
        if let Some(reason) = self.health.storage_failed() {
            return Err(RowWriteError::StorageFailed(reason.to_owned()));
        }
        if self.health.stopping() {
            return Err(RowWriteError::ShuttingDown);
        }
        // Removals free space.
        match self.health.no_space() {
            Some(reason) if ops.iter().any(|op| !matches!(op, Op::Delete { .. })) => {
                Err(RowWriteError::NoSpace(reason))
            }
            _ => Ok(()),
        }
    }

    fn submit(&self, batch: Batch, reply: RowReply) -> Result<(), RowWriteError> {
        // Again: the byte budget may have been waited for.
        self.check(&batch.ops)?;
        let pushed = self.backlog.push(&mut vec![(BatchOrigin::RowWriter(reply), batch)]);
        pushed.map_err(|closed| match closed {
            QueueClosed::Ended => RowWriteError::ShuttingDown,
            QueueClosed::Failed(error) => RowWriteError::StorageFailed(error.to_string()),
        })?;
        self.inbox.wake_for_rest();
        Ok(())
    }

    fn tell_news(&self) {
        self.bell.ring();
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }
}
