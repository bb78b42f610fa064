//! How large the store is, and how much room its file system has left.

use std::fs;
use std::path::Path;

use millrace_store::DiskUse;

use crate::files::folder;
use crate::locks::lock_folder::beside;

/// Returns `None` when the file system does not tell. `wal_stuck_from` is the size from which the log is too large, if
/// the last checkpoint could not copy all of it. Never opens the database itself (`lock_folder.rs` says why).
pub(crate) fn of(database: &Path, free_bytes_min: u64, wal_stuck_from: Option<u64>) -> Option<DiskUse> {
    let room = rustix::fs::statvfs(folder::parent_of(database)).ok()?;
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    let wal_bytes = bytes(&beside(database, "-wal"));
    Some(DiskUse {
        store_bytes: bytes(database),
        wal_bytes,
        wal_stuck: wal_stuck_from.is_some_and(|from| wal_bytes > from),
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
        free_bytes_min,
    })
}
