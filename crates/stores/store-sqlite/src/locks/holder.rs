//! Which process is in the way of a writer or an opener: the process ids in the lock files `writer` and `gate`, for
//! other processes that wait and for people.
//!
//! A holder writes its id only if another id is in the file: a process that writes alone reads twice 16 bytes of the
//! page cache per write lock and dirties nothing, so no commit has more to sync. So an id stays in the file after its
//! process has released the lock, and is believed only while the file is locked.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::process::{Pid, test_kill_process};

const SIGNATURE_BYTES: usize = 16;
const MARK_BYTES: usize = 8;

type Signature = [u8; SIGNATURE_BYTES];

/// Returns this process's signature: its id in decimal, spaces, a newline.
fn own() -> &'static Signature {
    static OWN: OnceLock<Signature> = OnceLock::new();
    OWN.get_or_init(|| {
        let mut signature = [b' '; SIGNATURE_BYTES];
        for (slot, digit) in signature.iter_mut().zip(std::process::id().to_string().bytes()) {
            *slot = digit;
        }
        signature[SIGNATURE_BYTES - 1] = b'\n';
        signature
    })
}

/// Which lock is held, and by which process if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldLock {
    /// The write lock.
    Writer(Option<u32>),
    /// The gate, while nobody has the write lock: a process that is next to write does not proceed, or a process opens
    /// or replaces the store.
    Gate(Option<u32>),
}

impl HeldLock {
    /// Returns the holder of the lock if it is another process.
    pub(crate) fn other(self) -> Option<u32> {
        let (HeldLock::Writer(pid) | HeldLock::Gate(pid)) = self;
        pid.filter(|pid| *pid != std::process::id())
    }
}

/// Returns which lock is held now. Uses descriptors of its own: locks belong to descriptors, and a thread of this
/// process may be waiting for a lock on the handle's descriptors.
pub(crate) fn find_held(folder: &Path) -> Option<HeldLock> {
    let held = |name: &str| {
        let file = File::open(folder.join(name)).ok()?;
        // Locked shared for a moment, which delays a process that wants the lock just now. Processes that only read the
        // store (`read_only.rs`) hold the gate shared and do not sign it.
        let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        is_held.then(|| read(&file).filter(|pid| is_there(*pid)))
    };
    held("writer").map(HeldLock::Writer).or_else(|| held("gate").map(HeldLock::Gate))
}

/// Returns whether the process exists. If not, a program that does not sign has the lock.
fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)))
}

/// Counts the handles that began to listen for commits (`news_teller.rs`), in the lock file `writer` behind the signature.
/// Read in the same call as the signature, so that a commit costs no call more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenersMark(u64);

impl ListenersMark {
    /// Writes the mark of one more listener. Must be called by the process that has the lock.
    pub(crate) fn raise(self, lock: &File) -> io::Result<()> {
        lock.write_all_at(&self.0.wrapping_add(1).to_le_bytes(), SIGNATURE_BYTES as u64)
    }
}

/// Signs a lock file; called by the process that has just got the lock. Only informs others, so a failure (a full disk)
/// is ignored. Returns the mark behind the signature, if it can be read: 0 in a file without one.
pub(crate) fn sign(lock: &File) -> Option<ListenersMark> {
    let mut found = [0; SIGNATURE_BYTES + MARK_BYTES];
    lock.read_at(&mut found, 0).ok()?;
    let (signature, mark) = found.split_at(SIGNATURE_BYTES);
    if signature != own() {
        let _ = lock.write_all_at(own(), 0);
    }
    mark.try_into().ok().map(|mark| ListenersMark(u64::from_le_bytes(mark)))
}

/// Returns the process that signed last.
fn read(lock: &File) -> Option<u32> {
    let mut found = [0; SIGNATURE_BYTES];
    let read = lock.read_at(&mut found, 0).ok()?;
    std::str::from_utf8(found.get(..read)?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_signs_is_read_back_and_an_unsigned_file_names_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("writer");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        assert_eq!(read(&file), None);
        sign(&file);
        assert_eq!(read(&file), Some(std::process::id()));
        std::fs::write(&path, format!("{:<15}\n", 4_194_304)).unwrap();
        assert_eq!(read(&file), Some(4_194_304));
        sign(&file);
        assert_eq!(read(&file), Some(std::process::id()));
        std::fs::write(&path, "garbage").unwrap();
        assert_eq!(read(&file), None);
    }

    #[test]
    fn the_mark_survives_signatures_and_is_no_part_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = crate::locks::lock_folder::open_file(folder.path(), "writer").unwrap();
        let first = sign(&file).unwrap();
        first.raise(&file).unwrap();
        let second = sign(&file).unwrap();
        assert_ne!(first, second);
        file.write_all_at(format!("{:<15}\n", 4_194_304).as_bytes(), 0).unwrap();
        assert_eq!(sign(&file), Some(second), "another process signs the same file");
        assert_eq!(read(&file), Some(std::process::id()));
    }

    #[test]
    fn only_the_holder_of_a_lock_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let lock = |name: &str| crate::locks::lock_folder::open_file(folder.path(), name).unwrap();
        assert_eq!(find_held(folder.path()), None, "there is no lock folder yet");
        let (gate, writer, own) = (lock("gate"), lock("writer"), Some(std::process::id()));
        sign(&writer);
        assert_eq!(find_held(folder.path()), None, "a name that stayed is no holder");
        gate.lock().unwrap();
        assert_eq!(
            find_held(folder.path()),
            Some(HeldLock::Gate(None)),
            "whoever wrote last is not named for it"
        );
        sign(&gate);
        assert_eq!(find_held(folder.path()), Some(HeldLock::Gate(own)));
        writer.lock().unwrap();
        assert_eq!(find_held(folder.path()), Some(HeldLock::Writer(own)));
        gate.unlock().unwrap();
        // No process has this id: the largest that Linux gives is 2^22 - 1.
        writer.write_all_at(format!("{:<15}\n", 1 << 22).as_bytes(), 0).unwrap();
        assert_eq!(find_held(folder.path()), Some(HeldLock::Writer(None)));
        writer.unlock().unwrap();
        gate.lock_shared().unwrap();
        assert_eq!(find_held(folder.path()), None, "who only looks at the store is no holder");
    }
}
