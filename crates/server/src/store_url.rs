//! Store URLs: which store, and how it is opened for serving.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use millrace_model::Durability;
use millrace_store::{MemoryStore, Store, StoreError};
use millrace_store_sqlite::{ServeLock, SqliteOptions, SqliteStore};

/// `sqlite:///app.db` (relative), `sqlite:////var/lib/app.db` (absolute) or `memory:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    Memory,
    Sqlite(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreUrlError {
    #[error("{0:?} names no file: write sqlite:///app.db (relative) or sqlite:////var/lib/app.db (absolute)")]
    NoFile(String),
    #[error("{0:?} is no store of this version: write sqlite:///FILE or memory:")]
    UnknownScheme(String),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Url(#[from] StoreUrlError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FromStr for StoreUrl {
    type Err = StoreUrlError;

    fn from_str(text: &str) -> Result<StoreUrl, StoreUrlError> {
        if text == "memory:" {
            return Ok(StoreUrl::Memory);
        }
        let Some(rest) = text.strip_prefix("sqlite:") else {
            return Err(StoreUrlError::UnknownScheme(text.to_owned()));
        };
        match rest.strip_prefix("///") {
            Some(path) if !path.is_empty() && !path.ends_with('/') => Ok(StoreUrl::Sqlite(path.into())),
            _ => Err(StoreUrlError::NoFile(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory:"),
            StoreUrl::Sqlite(path) => write!(f, "sqlite:///{}", path.display()),
        }
    }
}

/// A store that nobody else serves for as long as this lives.
pub struct OpenedStore {
    pub store: Arc<dyn Store>,
    /// The most this store can promise. A server must not confirm more.
    pub durability_max: Durability,
    _lock: Option<ServeLock>,
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedStore").field("durability_max", &self.durability_max).finish_non_exhaustive()
    }
}

/// Opens a store for serving, making it if it is not there. Blocks.
pub fn open_store(url: &StoreUrl, sqlite: SqliteOptions) -> Result<OpenedStore, OpenError> {
    match url {
        StoreUrl::Memory => Ok(OpenedStore {
            store: Arc::new(MemoryStore::new()),
            durability_max: Durability::Memory,
            _lock: None,
        }),
        StoreUrl::Sqlite(path) => Ok(open_sqlite(path, sqlite)?),
    }
}

fn open_sqlite(path: &Path, options: SqliteOptions) -> Result<OpenedStore, StoreError> {
    let lock = ServeLock::acquire(path)?;
    let store = SqliteStore::open(path, options)?;
    Ok(OpenedStore { store: Arc::new(store), durability_max: Durability::Fsync, _lock: Some(lock) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_stores() {
        for (text, url) in [
            ("memory:", StoreUrl::Memory),
            ("sqlite:///app.db", StoreUrl::Sqlite("app.db".into())),
            ("sqlite:////var/lib/app.db", StoreUrl::Sqlite("/var/lib/app.db".into())),
            ("sqlite:///data/a b.db", StoreUrl::Sqlite("data/a b.db".into())),
        ] {
            assert_eq!(text.parse(), Ok(url.clone()));
            assert_eq!(url.to_string(), text);
        }
        for text in
            ["", "memory", "memory:x", "sqlite:", "sqlite://app.db", "sqlite:///", "sqlite:///dir/", "app.db"]
        {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.contains("sqlite:///"), "{text}: {error}");
        }
    }
}
