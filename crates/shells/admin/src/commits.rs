//! Where the batches of actions are committed.

use std::sync::Arc;

use millrace_model::{Batch, Outcome};
use millrace_store::{Store, StoreError};

/// Commits the batches of actions. A server passes them through the group commit of its engine.
pub trait AdminCommits: Send + Sync {
    /// Returns false if a check failed: another process was faster, and nothing was written. May block.
    fn commit(&self, batch: Batch) -> Result<bool, StoreError>;
}

/// Commits to the store itself.
pub(crate) struct Direct(pub(crate) Arc<dyn Store>);

impl AdminCommits for Direct {
    fn commit(&self, batch: Batch) -> Result<bool, StoreError> {
        Ok(matches!(self.0.commit(&[batch])?.first(), Some(Outcome::Done(_))))
    }
}
