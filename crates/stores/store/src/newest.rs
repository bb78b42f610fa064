//! Where a watcher begins that has looked at everything else already.

use crate::error::StoreError;
use crate::port::{CommitNumber, Store};

/// Commits passed over per question.
const COMMITS_MAX: usize = 1024;

/// The last commit there is: whatever [`Store::watch`] tells after it is new.
pub fn newest_commit(store: &dyn Store) -> Result<CommitNumber, StoreError> {
    let mut after = CommitNumber(0);
    loop {
        // Nobody remembers as far back as the first commit for ever; then the answer says where the end is.
        let changes = store.watch(after, COMMITS_MAX)?;
        let end = !changes.complete || changes.last == after;
        after = changes.last;
        if end {
            return Ok(after);
        }
    }
}
