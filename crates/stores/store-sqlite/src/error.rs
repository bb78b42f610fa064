//! Maps SQLite's errors to the errors of the store port.

use std::fmt::Display;
use std::path::Path;

use millrace_store::{FailureCause, StoreError};
use rusqlite::ErrorCode;

use crate::rows::codec::Malformed;

/// A failure while a transaction is written or an index is read. The caller decides what it means for the store.
#[derive(Debug)]
pub(crate) enum SqliteFault {
    Sqlite(rusqlite::Error),
    Io(std::io::Error),
    /// A row of the store's own bookkeeping (table and key) fails its checksum.
    Malformed(&'static str, u64),
    /// A row of a small table (table and key) fails its checksum.
    DamagedRow(&'static str, String),
    /// The changes of a commit were not placed in the journal. The transaction is rolled back.
    NotPlaced,
    /// A record of the journal does not fit this copy: the text says what differs.
    Mismatch(String),
}

pub(crate) type Attempt<T> = Result<T, SqliteFault>;

/// Returns the cause of a store that cannot be opened because another program has locked it.
pub(crate) fn locked(path: &Path, error: rusqlite::Error) -> FailureCause {
    let text = format!(
        "{} is locked by another program ({error}): end it, or its transaction, and try again",
        path.display()
    );
    FailureCause::new(text, error)
}

impl SqliteFault {
    pub(crate) fn malformed(table: &'static str, key: u64) -> impl FnOnce(Malformed) -> SqliteFault {
        move |Malformed| SqliteFault::Malformed(table, key)
    }

    pub(crate) fn unreadable(self) -> StoreError {
        StoreError::Unreadable(self.into())
    }

    pub(crate) fn unusable(self, path: &Path) -> StoreError {
        StoreError::Unusable(match self {
            SqliteFault::Sqlite(error) if SqliteFault::is_locked(&error) => locked(path, error),
            fault => {
                let text = format!("{}: {fault}", path.display());
                fault.cause(text)
            }
        })
    }

    /// Returns a cause with this text and the error of SQLite or of the system.
    fn cause(self, text: String) -> FailureCause {
        match self {
            SqliteFault::Sqlite(error) => FailureCause::new(text, error),
            SqliteFault::Io(error) => FailureCause::new(text, error),
            SqliteFault::Malformed(..)
            | SqliteFault::DamagedRow(..)
            | SqliteFault::NotPlaced
            | SqliteFault::Mismatch(_) => text.into(),
        }
    }

    /// Returns the error of a store that this fault has poisoned. The reason of an earlier failure goes first: then this
    /// fault is not its source.
    pub(crate) fn poisoned(self, reason: &str) -> StoreError {
        let is_own = self.to_string() == reason;
        StoreError::Poisoned(if is_own { self.into() } else { reason.into() })
    }

    /// Returns the store error of a transaction that is known to have left nothing, or the fault if it leaves that
    /// open. The transaction must have been rolled back.
    ///
    /// - SQLITE_BUSY and SQLITE_LOCKED: a lock was not obtained. They come before the first write.
    /// - SQLITE_FULL: the file may not grow (`file_bytes_max`), or a write found no space (ENOSPC). In WAL mode a
    ///   transaction counts only with its last frame, which carries the commit mark and a checksum over all frames before
    ///   it. A write that failed came before that frame was whole. Frames that were written stay behind the log's end:
    ///   the next commit overwrites them, and recovery passes over frames without a commit mark. Of a checkpoint:
    ///   the database may hold some pages of the log already; the log keeps all of them until a later checkpoint has
    ///   synced the database.
    ///
    /// Everything else leaves it open. A failed sync (SQLITE_IOERR_FSYNC) comes after the commit mark was written, and
    /// the system may have thrown the pages away; so may an index of the log that cannot grow (SQLITE_IOERR_SHMSIZE). A
    /// write error that is no ENOSPC (SQLITE_IOERR_WRITE) says that the disk is not to be trusted.
    pub(crate) fn left_nothing(self) -> Result<StoreError, SqliteFault> {
        let (is_full, is_locked) = match &self {
            SqliteFault::Sqlite(error) => {
                (error.sqlite_error_code() == Some(ErrorCode::DiskFull), SqliteFault::is_locked(error))
            }
            // The fault is of a lock file, so the write lock was not obtained.
            SqliteFault::Io(_) => (false, true),
            SqliteFault::Malformed(..)
            | SqliteFault::DamagedRow(..)
            | SqliteFault::NotPlaced
            | SqliteFault::Mismatch(_) => (false, false),
        };
        match (is_full, is_locked) {
            (true, _) => Ok(StoreError::NoSpace(self.into())),
            (false, true) => Ok(StoreError::Busy(self.into())),
            (false, false) => Err(self),
        }
    }

    /// Returns whether a lock was not obtained in time.
    pub(crate) fn is_locked(error: &rusqlite::Error) -> bool {
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }

    /// Returns whether a rollback journal lies beside the file, which only a connection that may write can play back. A
    /// store has such a journal while SQLite switches it to its WAL, after it was made or restored.
    pub(crate) fn needs_rollback(error: &rusqlite::Error) -> bool {
        let code = error.sqlite_error().map(|error| error.extended_code);
        code == Some(rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
    }

    /// Returns whether a page of the file is damaged, as opposed to the file being unreachable. A value whose type is
    /// wrong for its column counts as damage as well.
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

impl Display for SqliteFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SqliteFault::Sqlite(error) => error.fmt(f),
            SqliteFault::Io(error) => error.fmt(f),
            SqliteFault::Malformed(table, key) => write!(f, "row {key} of table {table} is damaged"),
            SqliteFault::DamagedRow(table, key) => {
                write!(f, "row {key:?} of table {table} fails its checksum: `millrace doctor` tells more")
            }
            SqliteFault::NotPlaced => f.write_str("the commit was not placed in the journal"),
            SqliteFault::Mismatch(text) => f.write_str(text),
        }
    }
}

impl From<SqliteFault> for FailureCause {
    fn from(fault: SqliteFault) -> FailureCause {
        let text = fault.to_string();
        fault.cause(text)
    }
}

impl From<rusqlite::Error> for SqliteFault {
    fn from(error: rusqlite::Error) -> SqliteFault {
        SqliteFault::Sqlite(error)
    }
}

impl From<std::io::Error> for SqliteFault {
    fn from(error: std::io::Error) -> SqliteFault {
        SqliteFault::Io(error)
    }
}
