//! Looking at a store file without changing it: for backups and examinations, beside a server or without one.
//!
//! What looks holds no lock but SQLite's own, so it is in nobody's way. One thing it does cost: as long as a snapshot is
//! open, the WAL cannot start over and grows with what is written meanwhile.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::locks;

/// For recovery after a crash and for the moments in which the WAL is started over.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is nothing to look at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error("there is no store at {}", .0.display())]
    NoStore(PathBuf),
    #[error("{} cannot be opened: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} cannot be opened: {source}", .path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

/// Opens `path` for reading, if there is a file. Whether it holds a store is for the caller to find out.
pub(crate) fn open(path: &Path) -> Result<Connection, LookError> {
    let io = |source| LookError::Io { path: path.to_owned(), source };
    if !path.try_exists().map_err(io)? {
        return Err(LookError::NoStore(path.to_owned()));
    }
    // Whoever replaces the store holds the gate meanwhile; behind it, database and WAL belong together. Stores that
    // were never opened by a server (backups) have none.
    let gate = File::open(locks::folder(path).join("gate")).ok();
    if let Some(gate) = &gate {
        gate.lock_shared().map_err(io)?;
    }
    connect(path).map_err(|source| LookError::Sqlite { path: path.to_owned(), source })
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    // The first read opens the WAL, which then stays open. A file that cannot be read at all is the caller's finding.
    let _ = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    Ok(conn)
}
