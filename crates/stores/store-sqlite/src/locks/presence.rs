//! Whether another handle has the store open: a handle that is alone may poll for commits of others less often.
//!
//! Every handle holds the file `present` shared. To find out whether others do, a handle tries to lock it exclusively
//! for a moment. If that fails, the handle's own shared lock is given up, so for some microseconds the handle is not
//! seen: two handles that check at the same moment may both believe that they are alone, until they check again. So the
//! answer may save work, but nothing that must be right may depend on it; for that there is the file `open` of
//! [`crate::locks::lock_folder`], which is never checked in this way. No process ever waits for this lock: a process that is stopped
//! while it has the lock must not hold up the others.

use std::fs::File;
use std::io;
use std::path::Path;

use parking_lot::Mutex;

use crate::locks::lock_file::LockFile;
use crate::locks::lock_folder;

/// How often to retry while another handle is checking.
const ATTEMPTS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Presence(Mutex<LockFile>);

impl Presence {
    /// Joins the handles of a store. `folder` is the lock folder.
    pub(crate) fn enter(folder: &Path) -> io::Result<Presence> {
        let file = lock_folder::open_file(folder, "present")?;
        share(&file);
        Ok(Presence(Mutex::new(file)))
    }

    /// Returns whether another handle is open, in this or another process. Handles of versions that do not lock this
    /// file are not seen.
    pub(crate) fn others(&self) -> bool {
        let file = self.0.lock();
        let alone = file.try_lock().is_ok();
        share(&file);
        !alone
    }
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
        let one = Presence::enter(folder.path()).unwrap();
        assert!(!one.others());
        let (two, three) = (Presence::enter(folder.path()).unwrap(), Presence::enter(folder.path()).unwrap());
        for _ in 0..3 {
            assert!(one.others() && two.others() && three.others(), "asking must not make one invisible");
        }
        drop(three);
        assert!(one.others() && two.others());
        drop(one);
        assert!(!two.others());
    }
}
