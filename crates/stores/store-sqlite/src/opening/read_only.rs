//! Opens a store file for reading without changing it: for backups and examinations, beside a server or without one.
//!
//! Once opened, such a connection holds no lock but SQLite's own, so it hinders nobody. Its only cost: while a snapshot
//! is open, the WAL cannot start over and grows with everything that is written meanwhile.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use crate::files::file_error::FileError;
use crate::files::{leftovers, real_path};
use crate::locks::file_claim::{self, SETTLE_MAX, SETTLE_PAUSE};
use crate::locks::lock_folder;
use crate::rows::schema;

/// Covers recovery after a crash, and the moments in which the WAL starts over.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no store to read.
#[derive(Debug, thiserror::Error)]
pub enum ReadOnlyError {
    #[error("there is no store at {}", .0.display())]
    NoStore(PathBuf),
    #[error("{} cannot be opened: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} cannot be opened: {source}", .path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error(transparent)]
    File(#[from] FileError),
}

/// Returns the real path of the file at `path`, if it exists. Does not read the file.
pub fn find_store(path: &Path) -> Result<PathBuf, ReadOnlyError> {
    let real = real_path::of(path)?;
    leftovers::refuse(&real)?;
    match real.try_exists() {
        Ok(true) => Ok(real),
        Ok(false) => Err(ReadOnlyError::NoStore(path.to_owned())),
        Err(source) => Err(ReadOnlyError::Io { path: real, source }),
    }
}

/// Returns the schema version that the store at `path` has; nothing is migrated. `None` if the file is no store, or has
/// a version that this build does not know.
pub fn schema_version(path: &Path) -> Result<Option<usize>, ReadOnlyError> {
    let conn = open(path)?;
    Ok(schema::version(&conn, schema::MIGRATIONS).ok().filter(|version| *version > 0))
}

/// Opens the file at `path` for reading, if there is one. The caller checks whether it holds a store.
pub(crate) fn open(path: &Path) -> Result<Connection, ReadOnlyError> {
    open_found(&find_store(path)?)
}

/// Does the same for a path that [`find_store`] has returned.
pub(crate) fn open_found(path: &Path) -> Result<Connection, ReadOnlyError> {
    let io = |source| ReadOnlyError::Io { path: path.to_owned(), source };
    // A process that replaces the store holds the gate; behind the gate, database and WAL belong together. Stores that
    // were never opened by a server (backups) have no gate.
    let gate = File::open(lock_folder::folder(path).join("gate")).ok();
    if let Some(gate) = &gate {
        gate.lock_shared().map_err(io)?;
    }
    refuse_parted(path)?;
    connect(path).map_err(|source| ReadOnlyError::Sqlite { path: path.to_owned(), source })
}

/// Refuses a store part of which may be in a log beside another of its names: a hard link, or the name under which
/// another process has opened it. Must be called before SQLite opens the file, which would make a log beside this name.
/// A backup has no log, and may have any number of names.
fn refuse_parted(path: &Path) -> Result<(), ReadOnlyError> {
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

/// Returns whether a handle is open under this name; also true for a moment while another process checks the same. The
/// caller holds the gate shared, so no process is opening the store.
fn is_open_under(path: &Path) -> bool {
    let open = File::open(lock_folder::folder(path).join("open"));
    open.is_ok_and(|open| matches!(open.try_lock(), Err(TryLockError::WouldBlock)))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    // The first read opens the WAL, which then stays open. The caller finds out if the file cannot be read at all.
    let _ = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    Ok(conn)
}
