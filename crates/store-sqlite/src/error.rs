//! From SQLite's errors to what the port's callers are told.

use std::fmt::Display;
use std::path::Path;

use millrace_store::StoreError;
use rusqlite::ErrorCode;

use crate::codec::Malformed;

/// What can fail while a transaction is written or an index is read. The caller decides what it means for the store.
#[derive(Debug)]
pub(crate) enum Fault {
    Sqlite(rusqlite::Error),
    Io(std::io::Error),
    /// A row of the store's own bookkeeping fails its checksum.
    Malformed(&'static str, u64),
    /// A row of a small table fails its checksum.
    DamagedRow(&'static str, String),
}

pub(crate) type Attempt<T> = Result<T, Fault>;

impl Fault {
    pub(crate) fn malformed(table: &'static str, key: u64) -> impl FnOnce(Malformed) -> Fault {
        move |Malformed| Fault::Malformed(table, key)
    }

    pub(crate) fn unreadable(self) -> StoreError {
        StoreError::Unreadable(self.to_string())
    }

    pub(crate) fn unusable(self, path: &Path) -> StoreError {
        StoreError::Unusable(format!("{}: {self}", path.display()))
    }

    /// Whether a page of the file is damaged, as opposed to the file being out of reach. A value of a type its column
    /// never holds is damage as well.
    pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
        use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
        let is_nonsense = matches!(
            error,
            FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) | InvalidColumnType(..)
        );
        is_nonsense
            || matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Sqlite(error) => error.fmt(f),
            Fault::Io(error) => error.fmt(f),
            Fault::Malformed(table, key) => write!(f, "row {key} of table {table} is damaged"),
            Fault::DamagedRow(table, key) => {
                write!(f, "row {key:?} of table {table} fails its checksum: `millrace doctor` tells more")
            }
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sqlite(error)
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::Io(error)
    }
}
