//! One server per store: the second one is told who the first is.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use millrace_store::StoreError;

use crate::{folder, locks, private, real_path};

/// How often somebody may be found just looking.
const LOOKS_MAX: usize = 1000;

/// Held by the server of a store until it is dropped or its process ends, however it ends.
#[derive(Debug)]
pub struct ServeLock {
    database: PathBuf,
    _file: File,
}

impl ServeLock {
    /// Whatever name `database` is, the lock is that of the file it means now; [`crate::SqliteStore::open_served`] opens
    /// that file.
    pub fn acquire(database: &Path) -> Result<ServeLock, StoreError> {
        let database = real_path::of_store(database)?;
        let unusable =
            |error: std::io::Error| StoreError::Unusable(format!("{}: {error}", database.display()));
        // The store's own folder must last; the lock folder need not.
        folder::create(folder::parent_of(&database)).map_err(unusable)?;
        let folder = private::lock_folder(&database)?;
        let mut file = locks::open_file(&folder, "serve").map_err(unusable)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let read = file.read_to_string(&mut holder);
                let holder =
                    if read.is_ok() && !holder.trim().is_empty() { holder.trim() } else { "unknown" };
                let path = database.display();
                return Err(StoreError::InUse(format!(
                    "{path} is already served by process {holder}; stop it, or serve another store"
                )));
            }
        }
        let written = file.set_len(0).and_then(|()| file.rewind());
        written.and_then(|()| writeln!(file, "{}", std::process::id())).map_err(unusable)?;
        Ok(ServeLock { database, _file: file })
    }

    /// The file whose lock this is.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Whether somebody serves the store now. Only looks; what cannot be looked at counts as not served.
    pub fn is_held(database: &Path) -> bool {
        let Ok(database) = real_path::of(database) else { return false };
        let Ok(file) = File::open(locks::folder(&database).join("serve")) else { return false };
        // Shared, for a moment: two who look do not see one another, and a server that starts waits it out.
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

/// Whoever only looks whether the store is served (`doctor`) holds the lock shared for a moment: not a server.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOOKS_MAX {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if file.try_lock_shared().is_ok() => {
                file.unlock().map_err(TryLockError::Error)?;
                std::thread::yield_now();
            }
            tried => return tried,
        }
    }
    Err(TryLockError::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_server_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let first = ServeLock::acquire(&path).unwrap();
        let refused = ServeLock::acquire(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("already served by process {}", std::process::id())), "{refused}");
        drop(first);
        ServeLock::acquire(&path).unwrap();
    }
}
