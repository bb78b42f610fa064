//! The lock that allows only one server per store (`Store::claim_serving`): a second server is told which process the
//! first one is.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use millrace_store::StoreError;

use crate::files::file_error::FileError;
use crate::files::{folder, private, real_path};
use crate::locks::lock_file::LockFile;
use crate::locks::lock_folder;
use crate::store_core::StoreCore;

/// How often to retry while another process is only checking the lock.
const LOOKS_MAX: usize = 1000;

/// The lock of a store's server, held until it is dropped or its process ends, however it ends.
#[derive(Debug)]
pub struct ServeLock {
    database: PathBuf,
    _file: LockFile,
}

impl ServeLock {
    /// Locks the file that `database` means now, through links; [`SqliteStore::open_served`] opens that file.
    pub fn acquire(database: &Path) -> Result<ServeLock, StoreError> {
        let database = real_path::of_store(database)?;
        let unusable = |error| -> StoreError { FileError::io(&database)(error).into() };
        // The store's own folder must survive a power failure; the lock folder need not.
        folder::create(folder::parent_of(&database)).map_err(unusable)?;
        let folder = private::lock_folder(&database)?;
        let file = lock_folder::open_file(&folder, "serve").map_err(unusable)?;
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let read = (&*file).read_to_string(&mut holder);
                let holder =
                    if read.is_ok() && !holder.trim().is_empty() { holder.trim() } else { "unknown" };
                let path = database.display();
                let text =
                    format!("{path} is already served by process {holder}; stop it, or serve another store");
                return Err(StoreError::InUse(text.into()));
            }
        }
        let written = file.set_len(0).and_then(|()| (&*file).rewind());
        written.and_then(|()| writeln!(&*file, "{}", std::process::id())).map_err(unusable)?;
        Ok(ServeLock { database, _file: file })
    }

    /// Returns the file that this lock is for.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }

    /// Returns whether a process serves the store now. False if that cannot be found out.
    pub fn is_held(database: &Path) -> bool {
        let Ok(database) = real_path::of(database) else { return false };
        let Ok(file) = File::open(lock_folder::folder(&database).join("serve")) else { return false };
        // Locked shared for a moment: two processes that check do not see each other, and a server that starts retries
        // (`try_lock`).
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

impl StoreCore {
    /// Takes the lock beside the store's name, then the one on the file itself, in the order of an opening server.
    pub(crate) fn claim_serve_lock(&self) -> Result<(), StoreError> {
        let mut held = self.serve_lock.lock();
        if held.is_some() {
            return Ok(());
        }
        let lock = ServeLock::acquire(self.path())?;
        if let Some(claim) = &self.locks.claim {
            let claimed = claim.serve().map_err(FileError::io(self.path()))?;
            claimed.map_err(|unclaimed| FileError::unclaimed(self.path(), unclaimed))?;
        }
        *held = Some(lock);
        Ok(())
    }

    pub(crate) fn is_serve_lock_elsewhere(&self) -> bool {
        self.serve_lock.lock().is_none() && ServeLock::is_held(self.path())
    }
}

/// Takes the lock. A process that only checks whether the store is served (`doctor`) holds the lock shared for a
/// moment: that is no server, so this retries.
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
