//! Whether somebody else has the store open: who is alone may look for foreign commits less often.
//!
//! Every handle holds the file `present` shared. To find out whether others do, a handle asks for it exclusively for a
//! moment. That gives up the handle's own shared lock if it fails, so for some microseconds a handle is not seen: two
//! handles that ask at the same moment may both believe that they are alone, until they ask again. So this is good for
//! saving work and for nothing that must be right. (The file `open` of [`crate::locks`] is that, and is never asked like
//! this.) Nobody ever waits for this lock: a process that is stopped while it has it must not hold up the others.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::locks;

/// How often somebody may be found just asking.
const ATTEMPTS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Presence(Mutex<File>);

impl Presence {
    /// `folder` is the lock folder.
    pub(crate) fn enter(folder: &Path) -> io::Result<Presence> {
        let file = locks::open_file(folder, "present")?;
        share(&file);
        Ok(Presence(Mutex::new(file)))
    }

    /// Whether another handle is open, in this or another process. Handles of versions that do not hold the file are not
    /// seen.
    pub(crate) fn others(&self) -> bool {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = file.try_lock().is_ok();
        share(&file);
        !alone
    }
}

/// Without the lock the handle is not seen until it asks again.
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
