//! The commit from which to watch a store whose present content is already known.

use crate::error::StoreError;
use crate::port::{CommitNumber, Store};

/// Commits skipped per call of [`Store::watch`].
const COMMITS_MAX: usize = 1024;

/// Returns the number of the last commit: every change that [`Store::watch`] tells after it is new.
pub fn newest_commit(store: &dyn Store) -> Result<CommitNumber, StoreError> {
    let mut after = CommitNumber(0);
    loop {
        // If the store has forgotten the first commits, `changes` is not complete and `last` is the newest commit.
        let changes = store.watch(after, COMMITS_MAX)?;
        let end = !changes.complete || changes.last == after;
        after = changes.last;
        if end {
            return Ok(after);
        }
    }
}
