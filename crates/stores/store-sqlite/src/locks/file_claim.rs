//! Which handles have a database file open, whatever its name: a lock on the file itself (`flock`), in addition to
//! those in the lock folder (`lock_folder.rs`).
//!
//! The lock folder lies beside a name, and names change. A process could open a file that was moved while open, or
//! whose lock folder was removed, without seeing the locks of the process that has it open, and with a log of its own.
//! So every handle also locks the file itself, shared. The rule for an opener: no other handle is open under the name
//! exactly if no handle has the file.
//!
//! On local file systems of Linux `flock` and the POSIX locks of SQLite do not see each other. On other file systems
//! they may, so there this module locks nothing and only sees the handles of this process.
//!
//! A server also locks a byte of the file for itself (`serving_byte`), so that no second server can start when the lock
//! folder's file `serve` is removed.
//!
//! Closing any descriptor of the database drops SQLite's own locks in this process. So a descriptor that was once
//! opened stays open until its file has no name any more: one per store that this process has ever opened.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

/// How long an opener retries while the locks of the name and of the file contradict each other. A process that ends
/// drops its locks one after the other, and a process that only checks holds the file for a moment.
pub(crate) const SETTLE_MAX: Duration = Duration::from_secs(2);
/// The pause between two attempts.
pub(crate) const SETTLE_PAUSE: Duration = Duration::from_millis(5);
/// The first byte and the length of the range on which every reader and writer of SQLite holds a POSIX lock.
const SQLITE_SHARED: (u64, u64) = (0x4000_0002, 510);
/// The offset at which SQLite's file format says how the database is written, and the value there for a write-ahead
/// log.
const WRITE_VERSION_AT: u64 = 18;
const WRITE_VERSION_WAL: [u8; 2] = [2, 2];

/// Identifies a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(found: &Metadata) -> FileId {
        FileId { device: found.dev(), inode: found.ino() }
    }
}

/// The reason why an opener is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unclaimed {
    /// No handle has the locks of this name, but a handle has the file. SQLite's locks may tell which process.
    OtherName { holder: Option<u32> },
    /// Other handles have the locks of this name, but no handle has this file.
    OtherFile,
    /// The opener is a server, and another server has the file. SQLite's locks may tell which process.
    Served { holder: Option<u32> },
}

#[derive(Debug)]
struct Descriptor {
    file: Arc<File>,
    /// How many handles of this process have the file. The file is locked while there is any.
    handles: usize,
    /// A handle of this process is a server's.
    served: bool,
}

type Descriptors = BTreeMap<FileId, Descriptor>;

static DESCRIPTORS: Mutex<Descriptors> = Mutex::new(BTreeMap::new());

fn descriptors() -> MutexGuard<'static, Descriptors> {
    DESCRIPTORS.lock()
}

/// Finds or opens the descriptor of the file that has the name now. `None` if there is no plain file.
fn find<'a>(open: &'a mut Descriptors, path: &Path) -> io::Result<Option<(FileId, &'a mut Descriptor)>> {
    let mut id = match fs::metadata(path) {
        Ok(found) if found.is_file() => FileId::of(&found),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !open.contains_key(&id) {
        // Files without a name cannot be opened again, so their locks do not matter any more.
        open.retain(|_, one| one.handles > 0 || one.file.metadata().map_or(true, |found| found.nlink() > 0));
        // A lock on a byte needs a descriptor for writing, although nothing is ever written through it. A process that
        // may only read the file (a backup, `doctor`) needs no such lock.
        let file = File::options().read(true).write(true).open(path).or_else(|_| File::open(path))?;
        id = FileId::of(&file.metadata()?);
        match open.entry(id) {
            // The name was switched in between. Closing this descriptor would drop SQLite's locks on the other file.
            Entry::Occupied(_) => std::mem::forget(file),
            Entry::Vacant(free) => {
                free.insert(Descriptor { file: Arc::new(file), handles: 0, served: false });
            }
        }
    }
    Ok(open.get_mut(&id).map(|found| (id, found)))
}

/// A handle's share in a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileClaim {
    id: FileId,
    file: Arc<File>,
    /// Changed only while the table of descriptors is locked.
    serves: AtomicBool,
}

impl FileClaim {
    /// Claims the file for an opener that holds the gate of the name `path`. `alone` says that no handle is open under
    /// that name. Returns `None` if there is no file. The caller retries for up to [`SETTLE_MAX`] before it believes a
    /// refusal.
    pub(crate) fn acquire(path: &Path, alone: bool) -> io::Result<Result<Option<FileClaim>, Unclaimed>> {
        let mut open = descriptors();
        let Some((id, found)) = find(&mut open, path)? else { return Ok(Ok(None)) };
        if found.handles == 0 {
            if let Err(unclaimed) = lock(&found.file, alone)? {
                return Ok(Err(unclaimed));
            }
        } else if alone {
            return Ok(Err(Unclaimed::OtherName { holder: Some(std::process::id()) }));
        }
        found.handles += 1;
        Ok(Ok(Some(FileClaim { id, file: found.file.clone(), serves: AtomicBool::new(false) })))
    }

    /// Makes this handle the only server of the file, until it is dropped.
    pub(crate) fn serve(&self) -> io::Result<Result<(), Unclaimed>> {
        let mut open = descriptors();
        let Some(found) = open.get_mut(&self.id) else { return Ok(Ok(())) };
        if self.serves.load(Relaxed) {
            return Ok(Ok(()));
        }
        if found.served {
            return Ok(Err(Unclaimed::Served { holder: Some(std::process::id()) }));
        }
        if has_locks_of_its_own(&self.file) && !serving_byte::lock(&self.file)? {
            return Ok(Err(Unclaimed::Served { holder: holder(&self.file) }));
        }
        found.served = true;
        self.serves.store(true, Relaxed);
        Ok(Ok(()))
    }

    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Returns the file for inspection only: its descriptor must never be closed, see the head of this file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        if let Some(found) = descriptors().get_mut(&self.id) {
            if self.serves.load(Relaxed) {
                found.served = false;
                // Unlocking fails only for a bad descriptor.
                let _ = serving_byte::unlock(&found.file);
            }
            found.handles -= 1;
            if found.handles == 0 {
                let _ = found.file.unlock();
            }
        }
    }
}

fn lock(file: &File, alone: bool) -> io::Result<Result<(), Unclaimed>> {
    if !has_locks_of_its_own(file) {
        return Ok(Ok(()));
    }
    let other_name = || Err(Unclaimed::OtherName { holder: holder(file) });
    match (file.try_lock(), alone) {
        // An older version of Millrace has the file open with SQLite and does not lock it like this.
        (Ok(()), false) if holder(file).is_some() => {}
        (Ok(()), false) => {
            file.unlock()?;
            return Ok(Err(Unclaimed::OtherFile));
        }
        (Err(TryLockError::WouldBlock), true) => return Ok(other_name()),
        (Ok(()), true) | (Err(TryLockError::WouldBlock), false) => {}
        (Err(TryLockError::Error(error)), _) => return Err(error),
    }
    match file.try_lock_shared() {
        Ok(()) => Ok(Ok(())),
        Err(TryLockError::WouldBlock) => Ok(other_name()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether a handle of this or another process has the file. Changes nothing.
pub(crate) fn is_claimed(path: &Path) -> io::Result<Option<Unclaimed>> {
    let mut open = descriptors();
    let Some((_, found)) = find(&mut open, path)? else { return Ok(None) };
    if found.handles > 0 {
        return Ok(Some(Unclaimed::OtherName { holder: Some(std::process::id()) }));
    }
    if !has_locks_of_its_own(&found.file) {
        return Ok(None);
    }
    match found.file.try_lock() {
        Ok(()) => found.file.unlock().map(|()| None),
        Err(TryLockError::WouldBlock) => Ok(Some(Unclaimed::OtherName { holder: holder(&found.file) })),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether the file is a database that keeps a write-ahead log beside its name. Reads the header without
/// SQLite, because opening the file would create such a log. False if the file cannot be read.
pub(crate) fn keeps_log(path: &Path) -> bool {
    let mut open = descriptors();
    let Ok(Some((_, found))) = find(&mut open, path) else { return false };
    let mut version = [0; 2];
    found.file.read_exact_at(&mut version, WRITE_VERSION_AT).is_ok() && version == WRITE_VERSION_WAL
}

/// Returns one of the other processes that have the file open with SQLite. `None` also for a process of another
/// container.
fn holder(file: &File) -> Option<u32> {
    let (start, length) = SQLITE_SHARED;
    let whole =
        Flock { start, length, pid: None, typ: FlockType::WriteLock, offset_type: FlockOffsetType::Set };
    let held = fcntl_getlk(file, &whole).ok()??;
    u32::try_from(held.pid?.as_raw_pid()).ok()
}

/// Returns whether `flock` is independent of POSIX locks. Network file systems implement one by the other, so that a
/// handle would lock itself out.
#[cfg(target_os = "linux")]
fn has_locks_of_its_own(file: &File) -> bool {
    /// The magic numbers of NFS, SMB in three versions, and 9P.
    const REMOTE: [u64; 5] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];
    // The width of the field differs between machines; its low 32 bits are the number.
    let kind = |found: rustix::fs::StatFs| (found.f_type as u64) & 0xffff_ffff;
    rustix::fs::fstatfs(file).is_ok_and(|found| !REMOTE.contains(&kind(found)))
}

#[cfg(not(target_os = "linux"))]
fn has_locks_of_its_own(_: &File) -> bool {
    false
}

/// A lock on a byte of the file, far behind every byte that SQLite locks or that a database can have. The lock belongs
/// to the descriptor and not to the process (`F_OFD_SETLK`), so closing another descriptor of the file does not drop
/// it.
#[cfg(target_os = "linux")]
mod serving_byte {
    use std::fs::File;
    use std::io;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;

    const AT: i64 = 1 << 60;

    fn set(file: &File, kind: libc::c_int) -> Result<(), Errno> {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: AT,
            l_len: 1,
            l_pid: 0,
        };
        fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)
    }

    /// Returns whether this descriptor has the lock now.
    pub(super) fn lock(file: &File) -> io::Result<bool> {
        match set(file, libc::F_WRLCK) {
            Ok(()) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn unlock(file: &File) -> io::Result<()> {
        Ok(set(file, libc::F_UNLCK)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod serving_byte {
    use std::fs::File;
    use std::io;

    pub(super) fn lock(_: &File) -> io::Result<bool> {
        Ok(true)
    }

    pub(super) fn unlock(_: &File) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_server_of_this_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        fs::write(&path, "").unwrap();
        let first = claimed(&path, true).unwrap().unwrap();
        let second = claimed(&path, false).unwrap().unwrap();
        first.serve().unwrap().unwrap();
        first.serve().unwrap().expect("it serves already");
        let own = Unclaimed::Served { holder: Some(std::process::id()) };
        assert_eq!(second.serve().unwrap(), Err(own));
        drop(first);
        second.serve().unwrap().unwrap();
    }

    /// A descriptor that the test opens itself stands for another process.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_server_of_another_process_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        fs::write(&path, "").unwrap();
        let other = File::options().read(true).write(true).open(&path).unwrap();
        assert!(serving_byte::lock(&other).unwrap());
        let claim = claimed(&path, true).unwrap().unwrap();
        assert_eq!(claim.serve().unwrap(), Err(Unclaimed::Served { holder: None }));
        serving_byte::unlock(&other).unwrap();
        claim.serve().unwrap().unwrap();
        assert!(!serving_byte::lock(&other).unwrap());
        drop(claim);
        assert!(serving_byte::lock(&other).unwrap());
    }

    fn claimed(path: &Path, alone: bool) -> Result<Option<FileClaim>, Unclaimed> {
        FileClaim::acquire(path, alone).unwrap()
    }

    #[test]
    fn whoever_is_alone_under_a_name_must_be_alone_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        assert!(claimed(&path, true).unwrap().is_none(), "there is no file");
        fs::write(&path, "").unwrap();
        assert_eq!(claimed(&path, false).unwrap_err(), Unclaimed::OtherFile);
        let first = claimed(&path, true).unwrap().unwrap();
        let second = claimed(&path, false).unwrap().unwrap();
        let own = Unclaimed::OtherName { holder: Some(std::process::id()) };
        assert_eq!(claimed(&path, true).unwrap_err(), own);
        drop(first);
        assert_eq!((claimed(&path, true).unwrap_err(), is_claimed(&path).unwrap()), (own, Some(own)));
        drop(second);
        assert_eq!(is_claimed(&path).unwrap(), None);
        assert!(claimed(&path, true).unwrap().is_some());
    }

    /// A descriptor that the test opens itself stands for another process: locks belong to descriptors.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_handle_of_another_process_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        fs::write(&path, "").unwrap();
        let other = File::open(&path).unwrap();
        other.lock_shared().unwrap();
        let nobody_known = Unclaimed::OtherName { holder: None };
        assert_eq!(claimed(&path, true).unwrap_err(), nobody_known);
        assert_eq!(is_claimed(&path).unwrap(), Some(nobody_known));
        let beside = claimed(&path, false).unwrap().unwrap();
        other.unlock().unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(beside);
        other.try_lock().unwrap();
    }
}
