//! Rows that parts beside the bus keep in the store (timers of the CQRS loop, its Memory): written through the group
//! commit of the process, so that they share the sync of whatever else is committed at that moment.

use std::sync::Arc;

use millrace_model::{BATCH_BYTES_MAX, Batch, Durability, Op, Outcome, Space, Timestamp};
use millrace_store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// A byte budget counts in units of this size, because a semaphore counts in `u32`.
const UNIT_BYTES: usize = 1024;
const SHOWN_CHARS_MAX: usize = 80;

/// Why rows were not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowWriteError {
    #[error("there is nothing to write: give at least one row")]
    Empty,
    #[error("{row} may not be written this way: only rows of kv below {prefix}")]
    NotYourRow { row: String, prefix: &'static str },
    #[error("the batch holds {bytes} bytes: at most {max} are allowed")]
    TooLarge { bytes: usize, max: usize },
    #[error("{0}: nothing is published until there is room, send again later; acks and reads go on")]
    NoSpace(String),
    #[error(
        "the store has failed and nothing is written any more ({0}): the server ends, send again when it is back"
    )]
    StorageFailed(String),
    #[error("the server is shutting down: connect again later")]
    ShuttingDown,
    #[error("a check of the rows failed: nothing was written")]
    Refused,
}

/// The group commit that rows are handed to.
pub trait RowCommits: Send + Sync {
    /// Returns why these rows would be refused now, if so. Asked before the byte budget is waited for, so that a full disk
    /// is answered and not waited for.
    fn check(&self, _ops: &[Op]) -> Result<(), RowWriteError> {
        Ok(())
    }

    /// Queues the batch behind everything queued before. Must not block.
    fn submit(&self, batch: Batch, reply: RowReply) -> Result<(), RowWriteError>;

    /// Returns the wall clock's time.
    fn now(&self) -> Timestamp;

    /// A batch was written that appends or delays events: the engine is to look at the store.
    fn tell_news(&self) {}
}

/// The channel on which the writer of rows waits. Holds its share of the byte budget until the batch is settled.
#[derive(Debug)]
pub struct RowReply {
    answer: oneshot::Sender<Result<(), RowWriteError>>,
    _budget: OwnedSemaphorePermit,
}

impl RowReply {
    pub(crate) fn new(budget: OwnedSemaphorePermit) -> (RowReply, RowWrite) {
        let (answer, answered) = oneshot::channel();
        (RowReply { answer, _budget: budget }, RowWrite(answered))
    }

    pub fn committed(self, outcome: &Outcome) {
        self.send(match outcome {
            Outcome::Done(_) => Ok(()),
            _ => Err(RowWriteError::Refused),
        });
    }

    pub fn failed(self, error: &StoreError) {
        self.send(Err(match error {
            StoreError::TooLarge { bytes, max } => RowWriteError::TooLarge { bytes: *bytes, max: *max },
            error => RowWriteError::StorageFailed(error.to_string()),
        }));
    }

    fn send(self, result: Result<(), RowWriteError>) {
        // A failed send means that nobody waits any more.
        let _ = self.answer.send(result);
    }
}

/// Rows that were handed over.
#[derive(Debug)]
pub struct RowWrite(oneshot::Receiver<Result<(), RowWriteError>>);

impl RowWrite {
    /// Waits until the rows are as durable as promised.
    pub async fn durable(self) -> Result<(), RowWriteError> {
        // The writer answers every batch; it drops one only when it ends.
        self.0.await.unwrap_or(Err(RowWriteError::ShuttingDown))
    }
}

/// Writes rows of the space `kv` whose keys have one prefix. Cheap to clone.
#[derive(Clone)]
pub struct RowWriter {
    commits: Arc<dyn RowCommits>,
    prefix: &'static str,
    durability: Durability,
    budget: Arc<Semaphore>,
    budget_units: u32,
}

impl std::fmt::Debug for RowWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl RowWriter {
    /// `bytes_max` bounds the rows on their way to the disk, over all clones of this writer: further writes wait.
    pub fn new(
        commits: Arc<dyn RowCommits>,
        prefix: &'static str,
        durability: Durability,
        bytes_max: usize,
    ) -> RowWriter {
        let budget_units = units(bytes_max);
        let budget = Arc::new(Semaphore::new(budget_units as usize));
        RowWriter { commits, prefix, durability, budget, budget_units }
    }

    /// Writes the rows, all or none, and waits until they are durable.
    pub async fn write(&self, ops: Vec<Op>) -> Result<(), RowWriteError> {
        self.hand_over(ops).await?.durable().await
    }

    /// Hands the rows over, behind everything handed over before, and does not wait until they are durable: for callers
    /// that want many writes under way in order. Waits while the byte budget is used up.
    pub async fn hand_over(&self, ops: Vec<Op>) -> Result<RowWrite, RowWriteError> {
        if ops.is_empty() {
            return Err(RowWriteError::Empty);
        }
        if let Some(op) = ops.iter().find(|op| !self.is_own(op)) {
            return Err(RowWriteError::NotYourRow { row: describe(op), prefix: self.prefix });
        }
        let bytes = ops.iter().map(Op::bytes).sum();
        if bytes > BATCH_BYTES_MAX {
            return Err(RowWriteError::TooLarge { bytes, max: BATCH_BYTES_MAX });
        }
        self.commits.check(&ops)?;
        let share = units(bytes).min(self.budget_units);
        let budget = self.budget.clone().acquire_many_owned(share).await;
        // The semaphore is never closed.
        let budget = budget.map_err(|_| RowWriteError::ShuttingDown)?;
        let (reply, written) = RowReply::new(budget);
        // No event gets its id from this batch, so its nonce is never used.
        let (nonce, now) = (0, self.commits.now());
        let batch = Batch { nonce, now, durability: self.durability, checks: Vec::new(), ops };
        self.commits.submit(batch, reply)?;
        Ok(written)
    }

    fn is_own(&self, op: &Op) -> bool {
        match op {
            Op::Put { space, key, .. } | Op::PutNew { space, key, .. } | Op::Delete { space, key } => {
                *space == Space::Kv && key.starts_with(self.prefix)
            }
            _ => false,
        }
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX)
}

/// Names the row of an operation, for an error. The key is cut, because it may be of any length.
fn describe(op: &Op) -> String {
    match op {
        Op::Put { space, key, .. } | Op::PutNew { space, key, .. } | Op::Delete { space, key } => {
            let key: String = key.chars().take(SHOWN_CHARS_MAX).collect();
            format!("row {key:?} of {}", space.as_str())
        }
        _ => "something that is no row".to_owned(),
    }
}
