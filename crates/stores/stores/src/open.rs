//! Opening: alone, to serve it to others, or beside everybody else.

use std::fmt;
use std::path::PathBuf;
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

/// Opens a store for serving, making it if it is not there: nobody else serves it as long as this lives. A store that
/// cannot be written because of an earlier failure is refused. Blocks.
pub fn open_store(url: &StoreUrl, sqlite: SqliteOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(memory()),
        StoreUrl::Sqlite(path) => {
            let lock = ServeLock::acquire(path)?;
            let store = SqliteStore::open_served(&lock, sqlite)?;
            match store.poisoned() {
                Some(reason) => Err(StoreError::Poisoned(reason).into()),
                None => Ok(OpenedStore { lock: Some(lock), ..opened(store) }),
            }
        }
    }
}

/// Opens a store beside all others that have it open, a server among them, making it if it is not there. Blocks.
pub fn open_shared(url: &StoreUrl, sqlite: SqliteOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(memory()),
        StoreUrl::Sqlite(path) => Ok(opened(SqliteStore::open(path, sqlite)?)),
    }
}

/// What somebody who opens this store now waits for, should another process be in the way. Only looks.
pub fn opening_waits_for(url: &StoreUrl) -> Option<String> {
    match url {
        StoreUrl::Memory => None,
        StoreUrl::Sqlite(path) => millrace_store_sqlite::opening_waits_for(path),
    }
}

fn memory() -> OpenedStore {
    let store = Arc::new(MemoryStore::new());
    OpenedStore { store, durability_max: Durability::Memory, path: None, lock: None }
}

fn opened(store: SqliteStore) -> OpenedStore {
    let store = Arc::new(store);
    let path = Some(store.path().to_owned());
    OpenedStore { store, durability_max: Durability::Fsync, path, lock: None }
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
        // Under another name it is the same store.
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink("new/store.db", &link).unwrap();
        let served = open_store(&StoreUrl::Sqlite(link.clone()), SqliteOptions::default()).unwrap();
        assert!(shared.is_served_elsewhere());
        let refused = open_store(&url, SqliteOptions::default()).unwrap_err().to_string();
        assert!(refused.contains("already served by process"), "{refused}");
        let through = open_shared(&StoreUrl::Sqlite(link), SqliteOptions::default()).unwrap();
        assert!(through.is_served_elsewhere() && !served.is_served_elsewhere());
    }
}
