//! Whole batches of parts beside the engine (actions of people on handlers, schedules and delayed events), with the
//! checks that make them safe beside other processes: written through the group commit of the process.

use std::sync::Arc;

use millrace_model::{BATCH_BYTES_MAX, Batch, Op, Space};
use tokio::sync::Semaphore;

use crate::row_writer::{RowCommits, RowReply, RowWriteError};

/// Writes batches. Cheap to clone; clones share the bound.
#[derive(Clone)]
pub struct BatchWriter {
    commits: Arc<dyn RowCommits>,
    under_way: Arc<Semaphore>,
}

impl std::fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchWriter").finish_non_exhaustive()
    }
}

impl BatchWriter {
    /// `batches_max` bounds the batches on their way to the disk: further ones wait.
    pub fn new(commits: Arc<dyn RowCommits>, batches_max: usize) -> BatchWriter {
        BatchWriter { commits, under_way: Arc::new(Semaphore::new(batches_max.max(1))) }
    }

    /// Writes the batch and waits until it is durable. Returns false if one of its checks failed: nothing was written.
    pub async fn write(&self, batch: Batch) -> Result<bool, RowWriteError> {
        let bytes = batch.ops.iter().map(Op::bytes).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(RowWriteError::TooLarge { bytes, max: BATCH_BYTES_MAX });
        }
        self.commits.check(&batch.ops)?;
        let permit = self.under_way.clone().acquire_owned().await;
        // The semaphore is never closed.
        let permit = permit.map_err(|_| RowWriteError::ShuttingDown)?;
        let is_news = batch.ops.iter().any(is_news);
        let (reply, answered) = RowReply::new(permit);
        self.commits.submit(batch, reply)?;
        match answered.durable().await {
            Ok(()) => {
                if is_news {
                    self.commits.tell_news();
                }
                Ok(true)
            }
            Err(RowWriteError::Refused) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether the engine must learn of the operation: it adds an event to a stream, or changes when one is due.
fn is_news(op: &Op) -> bool {
    match op {
        Op::Append(_) | Op::Delay(_) => true,
        Op::Put { space, .. } | Op::PutNew { space, .. } | Op::Delete { space, .. } => *space == Space::Due,
        _ => false,
    }
}
