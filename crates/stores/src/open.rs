//! Opening: alone, to serve it to others, or beside everybody else.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_model::Durability;
use millrace_store::{MemoryStore, Store, StoreError};
use millrace_store_sqlite::{ServeLock, SqliteOptions, SqliteStore};

use crate::url::{StoreUrl, StoreUrlError};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that is open as long as this lives.
pub struct OpenedStore {
    pub store: Arc<dyn Store>,
    /// The most this store can promise. Nobody must confirm more.
    pub durability_max: Durability,
    /// Where the lock of its server would be; none for a store that nobody else can reach.
    path: Option<PathBuf>,
    lock: Option<ServeLock>,
}

impl OpenedStore {
    /// Whether some other process serves this store now, and so does its housekeeping.
    pub fn is_served_elsewhere(&self) -> bool {
        self.lock.is_none() && self.path.as_deref().is_some_and(ServeLock::is_held)
    }
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedStore").field("durability_max", &self.durability_max).finish_non_exhaustive()
    }
}

/// Opens a store for serving, making it if it is not there: nobody else serves it as long as this lives. Blocks.
pub fn open_store(url: &StoreUrl, sqlite: SqliteOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(memory()),
        StoreUrl::Sqlite(path) => {
            let lock = ServeLock::acquire(path)?;
            Ok(OpenedStore { lock: Some(lock), ..open_sqlite(path, sqlite)? })
        }
    }
}

/// Opens a store beside all others that have it open, a server among them, making it if it is not there. Blocks.
pub fn open_shared(url: &StoreUrl, sqlite: SqliteOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(memory()),
        StoreUrl::Sqlite(path) => Ok(open_sqlite(path, sqlite)?),
    }
}

fn memory() -> OpenedStore {
    let store = Arc::new(MemoryStore::new());
    OpenedStore { store, durability_max: Durability::Memory, path: None, lock: None }
}

fn open_sqlite(path: &Path, options: SqliteOptions) -> Result<OpenedStore, StoreError> {
    let store = Arc::new(SqliteStore::open(path, options)?);
    Ok(OpenedStore { store, durability_max: Durability::Fsync, path: Some(path.to_owned()), lock: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_store_knows_whether_it_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let url = StoreUrl::Sqlite(folder.path().join("new/store.db"));
        let shared = open_shared(&url, SqliteOptions::default()).unwrap();
        assert!(!shared.is_served_elsewhere());
        let served = open_store(&url, SqliteOptions::default()).unwrap();
        assert!(shared.is_served_elsewhere() && !served.is_served_elsewhere());
        drop(served);
        assert!(!shared.is_served_elsewhere());
    }
}
