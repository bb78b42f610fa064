//! Looking at a store file without changing it: for backups and examinations, beside a server or without one.
//!
//! What looks holds no lock but SQLite's own, so it is in nobody's way. One thing it does cost: as long as a snapshot is
//! open, the WAL cannot start over and grows with what is written meanwhile.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::file_claim::{self, SETTLE_MAX, SETTLE_PAUSE};
use crate::file_error::FileError;
use crate::{leftovers, locks, real_path, schema};

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
    #[error(transparent)]
    File(#[from] FileError),
}

/// The file that `path` means, if it is there; what it holds is not looked at.
pub fn find_store(path: &Path) -> Result<PathBuf, LookError> {
    let real = real_path::of(path)?;
    leftovers::refuse(&real)?;
    match real.try_exists() {
        Ok(true) => Ok(real),
        Ok(false) => Err(LookError::NoStore(path.to_owned())),
        Err(source) => Err(LookError::Io { path: real, source }),
    }
}

/// Returns the schema version of the store that `path` means, as it is: looking brings nothing forward. `None` when the
/// file is no store, or of a version that this build does not know.
pub fn schema_version(path: &Path) -> Result<Option<usize>, LookError> {
    let conn = open(path)?;
    Ok(schema::version(&conn, schema::MIGRATIONS).ok().filter(|version| *version > 0))
}

/// Opens the file that `path` means for reading, if there is one. Whether it holds a store is for the caller to find out.
pub(crate) fn open(path: &Path) -> Result<Connection, LookError> {
    open_found(&find_store(path)?)
}

/// The same for a path that [`find_store`] has found.
pub(crate) fn open_found(path: &Path) -> Result<Connection, LookError> {
    let io = |source| LookError::Io { path: path.to_owned(), source };
    // Whoever replaces the store holds the gate meanwhile; behind it, database and WAL belong together. Stores that
    // were never opened by a server (backups) have none.
    let gate = File::open(locks::folder(path).join("gate")).ok();
    if let Some(gate) = &gate {
        gate.lock_shared().map_err(io)?;
    }
    refuse_parted(path)?;
    connect(path).map_err(|source| LookError::Sqlite { path: path.to_owned(), source })
}

/// Part of a store may be in a log that lies beside another of its names: a hard link, or the name it had when the process
/// that has it open opened it. Asked before SQLite sees the file, which would make a log beside this name. A backup has no
/// log, and may have as many names as whoever keeps it likes.
fn refuse_parted(path: &Path) -> Result<(), LookError> {
    if !file_claim::keeps_log(path) {
        return Ok(());
    }
    real_path::refuse_linked(path)?;
    let settled = Instant::now() + SETTLE_MAX;
    while !is_open_under(path) {
        match file_claim::is_claimed(path).map_err(FileError::io(path))? {
            None => break,
            Some(_) if Instant::now() < settled => thread::sleep(SETTLE_PAUSE),
            Some(unclaimed) => return Err(FileError::unclaimed(path, unclaimed).into()),
        }
    }
    Ok(())
}

/// Whether a handle is open under this name; also true for a moment while another process asks the same. The caller holds
/// the gate shared, so nobody is opening the store.
fn is_open_under(path: &Path) -> bool {
    let open = File::open(locks::folder(path).join("open"));
    open.is_ok_and(|open| matches!(open.try_lock(), Err(TryLockError::WouldBlock)))
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
