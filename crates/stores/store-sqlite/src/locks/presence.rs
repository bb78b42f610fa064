//! Which other handles have the store open: handles that tell of their commits (`news_teller.rs`), and silent ones, which
//! are of older versions. A handle that watches the store polls rarely while it is told of every commit, and often while
//! a silent handle is open.
//!
//! Every handle holds the file `telling` shared; older versions held `present` instead. To find out whether others do, a
//! handle tries to lock a file exclusively for a moment. Its own shared lock is given up if that fails, so for some
//! microseconds the handle is not seen: two handles that check at the same moment may both believe that they are alone,
//! until they check again. So the answer may save work, but nothing that must be right may depend on it; for that there is
//! the file `open` of [`crate::locks::lock_folder`], which is never checked in this way. No process ever waits for these
//! locks: a process that is stopped while it has one must not hold up the others.
//!
//! Handles of this version do not hold `present`, because a lock cannot tell how many hold it. So an older handle takes
//! itself for alone beside newer ones, and looks for their commits as rarely as it does then (every 100 ms).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::locks::lock_file::LockFile;
use crate::locks::lock_folder;

/// How often to retry while another handle is checking.
const ATTEMPTS_MAX: usize = 1000;
const TELLING: &str = "telling";
const SILENT: &str = "present";

#[derive(Debug)]
pub(crate) struct Presence {
    telling: Mutex<LockFile>,
    silent: Mutex<LockFile>,
}

impl Presence {
    /// Joins the handles of a store. `folder` is the lock folder.
    pub(crate) fn enter(folder: &Path) -> io::Result<Presence> {
        let silent = lock_folder::open_file(folder, SILENT)?;
        let telling = lock_folder::open_file(folder, TELLING)?;
        share(&telling);
        Ok(Presence { telling: Mutex::new(telling), silent: Mutex::new(silent) })
    }

    /// Returns whether another handle of this version is open, in this or another process.
    pub(crate) fn has_telling(&self) -> bool {
        let file = self.telling.lock();
        let alone = file.try_lock().is_ok();
        share(&file);
        !alone
    }

    /// Returns whether a handle is open that does not tell of its commits. Handles that lock neither file are not seen.
    pub(crate) fn has_silent(&self) -> bool {
        let file = self.silent.lock();
        let alone = file.try_lock().is_ok();
        // Unlocking fails only for a bad descriptor.
        let _ = file.unlock();
        !alone
    }
}

/// Returns the file that a silent handle opens before it reads or writes anything.
pub(crate) fn silent_file(folder: &Path) -> PathBuf {
    folder.join(SILENT)
}

/// Takes the shared lock. Without it the handle is not seen until it checks again.
fn share(file: &File) {
    for _ in 0..ATTEMPTS_MAX {
        if file.try_lock_shared().is_ok() {
            return;
        }
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_seen_while_they_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let enter = || Presence::enter(folder.path()).unwrap();
        let one = enter();
        assert!(!one.has_telling());
        let (two, three) = (enter(), enter());
        for _ in 0..3 {
            let seen = [&one, &two, &three].map(Presence::has_telling);
            assert_eq!(seen, [true; 3], "asking must not make one invisible");
        }
        drop(three);
        assert!(one.has_telling() && two.has_telling());
        drop(one);
        assert!(!two.has_telling() && !two.has_silent());
    }

    #[test]
    fn a_handle_of_an_older_version_is_silent() {
        let folder = tempfile::tempdir().unwrap();
        let one = Presence::enter(folder.path()).unwrap();
        let older = lock_folder::open_file(folder.path(), SILENT).unwrap();
        older.try_lock_shared().unwrap();
        assert!(one.has_silent() && one.has_silent() && !one.has_telling());
        drop(older);
        assert!(!one.has_silent());
    }
}
