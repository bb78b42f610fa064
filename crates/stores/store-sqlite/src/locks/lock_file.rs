//! A file that is there to be locked.

use std::fs::File;
use std::ops::Deref;

/// Gives its lock back when it is dropped. Closing the file is not enough: a child process that this process is just
/// starting has a duplicate of every descriptor until its program begins, and a lock of `flock` lasts as long as any
/// duplicate is open. The next process would find the store in use by a process that has closed it.
#[derive(Debug)]
pub(crate) struct LockFile(File);

impl LockFile {
    pub(crate) fn new(file: File) -> LockFile {
        LockFile(file)
    }
}

impl Deref for LockFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A lock that cannot be given back now is given back with the last descriptor.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_with_its_file_although_a_duplicate_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let open = || LockFile::new(File::options().create(true).append(true).open(&path).unwrap());
        let held = open();
        held.try_lock().unwrap();
        // As a child process has it between fork and exec.
        let duplicate = held.try_clone().unwrap();
        assert!(open().try_lock().is_err());
        drop(held);
        open().try_lock().unwrap();
        drop(duplicate);
    }
}
