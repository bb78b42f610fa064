//! Opening a store: alone, to serve it to others, or beside all other processes.

use std::fmt;
use std::sync::Arc;

use millrace_model::Durability;
use millrace_store::{MemoryStore, Store, StoreError};
use millrace_store_sqlite::{ServeLock, SqliteStore};

use crate::options::StoreOptions;
use crate::shared::open_leading;
use crate::url::{StoreUrl, StoreUrlError};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address of a shared store is wrong: the text says what.
    #[error("{0}")]
    Address(String),
    /// A shared store cannot be opened.
    #[error(transparent)]
    Shared(millrace_store_journal::OpenError),
}

impl From<millrace_store_journal::OpenError> for OpenError {
    fn from(error: millrace_store_journal::OpenError) -> OpenError {
        match error {
            millrace_store_journal::OpenError::Store(error) => OpenError::Store(error),
            error => OpenError::Shared(error),
        }
    }
}

/// An open store. Dropping the last share of `store` closes it, and ends the right to serve it if it had that.
pub struct OpenedStore {
    pub store: Arc<dyn Store>,
    /// The highest durability that this store can promise. No process may confirm more.
    pub durability_max: Durability,
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedStore").field("durability_max", &self.durability_max).finish_non_exhaustive()
    }
}

/// Opens a store to serve it ([`Store::claim_serving`]), and makes it if it does not exist. Blocks.
///
/// # Errors
///
/// Also fails for a store that an earlier failure has poisoned.
pub fn open_store(url: &StoreUrl, options: &StoreOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(memory()),
        StoreUrl::Sqlite(path) => {
            let store = SqliteStore::open_served(ServeLock::acquire(path)?, options.for_sqlite())?;
            match store.poisoned() {
                Some(reason) => Err(StoreError::Poisoned(reason.into()).into()),
                None => Ok(opened(store)),
            }
        }
        StoreUrl::Shared(url) => open_leading(url, options),
    }
}

/// Opens a store beside all processes that have it open, a server among them. Makes the store if it does not exist.
/// Blocks. A store that several machines share is opened by one process at a time, which leads it.
pub fn open_shared(url: &StoreUrl, options: &StoreOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(memory()),
        StoreUrl::Sqlite(path) => Ok(opened(SqliteStore::open(path, options.for_sqlite())?)),
        StoreUrl::Shared(url) => open_leading(url, options),
    }
}

/// Returns what an attempt to open this store would wait for now, if another process is in the way. Changes nothing.
pub fn opening_waits_for(url: &StoreUrl) -> Option<String> {
    match url {
        StoreUrl::Memory | StoreUrl::Shared(_) => None,
        StoreUrl::Sqlite(path) => millrace_store_sqlite::opening_waits_for(path),
    }
}

fn memory() -> OpenedStore {
    OpenedStore { store: Arc::new(MemoryStore::new()), durability_max: Durability::Memory }
}

fn opened(store: SqliteStore) -> OpenedStore {
    OpenedStore { store: Arc::new(store), durability_max: Durability::Fsync }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_store_knows_whether_it_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(folder.path().join("new/store.db"));
        let shared = open_shared(&url, &StoreOptions::default()).unwrap();
        assert!(!shared.store.is_served_elsewhere());
        let served = open_store(&url, &StoreOptions::default()).unwrap();
        assert!(shared.store.is_served_elsewhere() && !served.store.is_served_elsewhere());
        drop(served);
        assert!(!shared.store.is_served_elsewhere());
        // The same store opened by another name.
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink("new/store.db", &link).unwrap();
        let served = open_store(&StoreUrl::Sqlite(link.clone()), &StoreOptions::default()).unwrap();
        assert!(shared.store.is_served_elsewhere());
        let refused = open_store(&url, &StoreOptions::default()).unwrap_err().to_string();
        assert!(refused.contains("already served by process"), "{refused}");
        let through = open_shared(&StoreUrl::Sqlite(link), &StoreOptions::default()).unwrap();
        assert!(through.store.is_served_elsewhere() && !served.store.is_served_elsewhere());
    }
}
