//! Looking at the work of handlers from outside: namespaces, sessions, events and how they stand, dead letters.
//!
//! Nothing here writes, and nothing here makes a store. What people do by hand (replay, cleanup, forgetting a handler)
//! is built by the `claims` engine and committed by [`act`].
//!
//! Start with [`Admin`].

mod act;
mod events;
mod find;
mod namespaces;
mod sessions;
mod standing;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use millrace_model::{DeadLetterRow, Namespace, RowError, Space};
use millrace_store::{KeyRange, Row, Store, StoreError};

pub use act::{ActError, Cleaned, Replayed};
pub use events::{ClaimView, EventView, Status};
pub use namespaces::NamespaceView;
pub use sessions::{Liveness, SessionView};

use crate::state::{StateError, scan};

/// Why there is no answer. A row that cannot be read is named; `millrace doctor` tells more.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Row(#[from] RowError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// One store, looked at from outside.
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn Store>,
}

impl Admin {
    pub fn new(store: Arc<dyn Store>) -> Admin {
        Admin { store }
    }

    /// The newest dead letters of handlers, the oldest of them first; each with the key of its row.
    pub fn dead_letters(
        &self,
        namespace: &Namespace,
        limit: usize,
    ) -> Result<Vec<(Row, DeadLetterRow)>, AdminError> {
        let mut found = std::collections::VecDeque::new();
        self.each_row::<AdminError>(
            Space::DeadLetters,
            &KeyRange::prefix(&format!("{namespace}/")),
            |row| {
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

    /// Goes through the rows of a range, page by page.
    fn each_row<E: From<StoreError>>(
        &self,
        space: Space,
        range: &KeyRange,
        mut each: impl FnMut(Row) -> Result<ControlFlow<()>, E>,
    ) -> Result<(), E> {
        scan::each_row(&*self.store, space, range.clone(), &mut each)
    }

    fn count_rows(&self, space: Space, prefix: &str) -> Result<u64, AdminError> {
        let mut count = 0;
        self.each_row::<AdminError>(space, &KeyRange::prefix(prefix), |_| {
            count += 1;
            Ok(ControlFlow::Continue(()))
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
