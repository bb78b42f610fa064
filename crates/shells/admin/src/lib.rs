//! The work of handlers seen from outside, as operators see and mend it: namespaces, sessions, handlers, schedules,
//! events and their status, dead letters.
//!
//! Most of this only reads. Actions of people (replay, cleanup, forgetting a handler) are built by the `claims` engine
//! and committed in `cleanup.rs` and `replay.rs`.
//!
//! Not in this crate: sessions (`millrace-session` runs them; nothing here needs one), opening a store (the caller
//! brings it), and how any of this is shown (the command line and the server do that).
//!
//! Start with [`Admin`].

mod claims;
mod cleanup;
mod commits;
mod delayed;
mod events;
mod find;
mod handlers;
mod letter_changes;
mod letters;
mod namespaces;
mod read;
mod replay;
mod schedule_changes;
mod schedules;
mod sessions;
mod standing;
mod totals;
mod trace;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_model::{DeadLetterRow, Namespace, RowError, Space};
use millrace_store::{KeyRange, Row, Store, StoreError, try_each_row};

pub use claims::{ClaimPage, ClaimQuery, ClaimStanding, OpenClaim};
pub use cleanup::{ChangeError, Cleaned};
pub use commits::AdminCommits;
pub use delayed::{DelayedPage, DelayedQuery, DelayedView};
pub use events::{ClaimView, EventView, Status};
pub use handlers::{HandlerPage, HandlerQuery, HandlerView};
pub use letter_changes::{LetterChoice, LettersDone};
pub use letters::{HandlerLetters, LetterPage, LetterQuery, replaying};
pub use namespaces::NamespaceView;
pub use read::read;
pub use replay::{PublishedAgain, Replayed, Resent};
pub use schedules::{MISSED_MAX, NEXT_FIRES, ScheduleView};
pub use sessions::{Liveness, SESSION_TTL_MS, SessionPage, SessionView};
pub use totals::Totals;
pub use trace::{FireView, made_by};

/// Rows per read of the store.
const PAGE_ROWS: usize = 512;
/// Keys per read of the store.
const KEYS_PAGE: usize = 4096;

/// Why a question cannot be answered. A row that cannot be decoded is named; `millrace doctor` tells more.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Row(#[from] RowError),
}

/// A store seen from outside.
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn Store>,
    commits: Arc<dyn AdminCommits>,
}

impl Admin {
    /// Reads the store, and commits to it directly: for a process without a group commit of its own.
    pub fn new(store: Arc<dyn Store>) -> Admin {
        Admin { commits: Arc::new(commits::Direct(store.clone())), store }
    }

    /// Reads the store, and commits through `commits`.
    pub fn committing(store: Arc<dyn Store>, commits: Arc<dyn AdminCommits>) -> Admin {
        Admin { store, commits }
    }

    /// Returns the newest dead letters of handlers, the oldest of them first; each with its row.
    pub fn dead_letters(
        &self,
        namespace: &Namespace,
        limit: usize,
    ) -> Result<Vec<(Row, DeadLetterRow)>, AdminError> {
        let mut found = std::collections::VecDeque::new();
        let replaying = self.replaying(&format!("{namespace}/"))?;
        self.each_row::<AdminError>(
            Space::DeadLetters,
            &KeyRange::prefix(&format!("{namespace}/")),
            |row| {
                if replaying.contains(&row.key) {
                    return Ok(ControlFlow::Continue(()));
                }
                if found.len() == limit {
                    found.pop_front();
                }
                let letter = DeadLetterRow::decode(&row.key, &row.value)?;
                found.push_back((row, letter));
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(found.into())
    }

    /// Calls `each` with the rows of a range, page by page.
    fn each_row<E: From<StoreError>>(
        &self,
        space: Space,
        range: &KeyRange,
        mut each: impl FnMut(Row) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        try_each_row(&*self.store, space, range.clone(), PAGE_ROWS, &mut each)
    }

    /// Calls `each` with the keys of a range, page by page, until it breaks.
    fn each_key(
        &self,
        space: Space,
        mut range: KeyRange,
        mut each: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), AdminError> {
        loop {
            let page = self.store.scan_keys(space, &range, KEYS_PAGE)?;
            if page.iter().try_for_each(|key| each(key)).is_break() {
                return Ok(());
            }
            match page.last().filter(|_| page.len() == KEYS_PAGE) {
                Some(last) => range.from = format!("{last}\0"),
                None => return Ok(()),
            }
        }
    }

    fn count_rows(&self, space: Space, prefix: &str) -> Result<u64, AdminError> {
        let mut count = 0;
        self.each_key(space, KeyRange::prefix(prefix), |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    fn row(&self, space: Space, key: &str) -> Result<Option<Row>, AdminError> {
        let range = KeyRange { from: key.to_owned(), to: Some(format!("{key}\0")) };
        Ok(self.store.scan(space, &range, 1)?.pop())
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}
