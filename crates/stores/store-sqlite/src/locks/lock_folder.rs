//! The lock folder beside the database: fairness between writing processes, and the flag that stops them all.
//!
//! The locks are files of their own, because SQLite's locks on the database file vanish as soon as the process closes
//! any descriptor of that file: in this crate only SQLite and `file_claim.rs`, which never closes it, open the
//! database.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use crate::files::file_error::FileError;
use crate::files::private;
use crate::locks::file_claim::{FileClaim, SETTLE_MAX, SETTLE_PAUSE};
use crate::locks::holder::{self, HeldLock, ListenersMark};
use crate::locks::lock_file::LockFile;
use crate::locks::news_teller::NewsTeller;
use crate::locks::presence::Presence;

/// The poison file has its full size from the start, so that raising the flag on a full disk allocates nothing.
const POISON_BYTES: usize = 512;
const CLEAN: u8 = b'-';
const RAISED: u8 = b'!';

#[derive(Debug)]
pub(crate) struct Locks {
    folder: PathBuf,
    /// This handle's share in the database file itself. Dropped before `open`: an opener that finds no handle under the
    /// name must find no handle that has the file.
    pub(crate) claim: Option<FileClaim>,
    /// Held shared as long as the handle lives: an opener that gets it exclusively is alone. Dropped before the gate,
    /// so that an opener that passes the gate does not find it held.
    open: LockFile,
    gate: LockFile,
    writer: LockFile,
    poison: LockFile,
    pub(crate) presence: Presence,
    pub(crate) news: NewsTeller,
    /// The reason in a raised flag, if this handle was alone when it opened the store: then this handle recovers and
    /// lowers the flag.
    pub(crate) to_recover: Option<String>,
    /// The handle's own failure, for which no file is needed.
    poisoned: OnceLock<String>,
}

/// Returns the lock folder, `<database>-locks/`.
pub(crate) fn folder(database: &Path) -> PathBuf {
    beside(database, "-locks")
}

/// Returns the path whose name is that of `path` with `more` appended.
pub(crate) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

pub(crate) fn open_file(folder: &Path, name: &str) -> io::Result<LockFile> {
    private::options().create(true).open(folder.join(name)).map(LockFile::new)
}

/// Returns the text of a raised flag. A file that cannot be read counts as raised; an empty file is new and counts as
/// lowered.
pub(crate) fn raised_text(poison: &File) -> Option<String> {
    let mut flag = [CLEAN];
    match poison.read_at(&mut flag, 0) {
        Ok(_) if flag[0] == CLEAN => None,
        Ok(_) => {
            let mut bytes = [b' '; POISON_BYTES];
            let read = poison.read_at(&mut bytes, 0).unwrap_or(0);
            Some(String::from_utf8_lossy(bytes.get(1..read).unwrap_or_default()).trim().to_owned())
        }
        Err(error) => Some(format!("the poison flag cannot be read: {error}")),
    }
}

fn lower(poison: &File) -> io::Result<()> {
    let mut clean = [b' '; POISON_BYTES];
    clean[0] = CLEAN;
    poison.write_all_at(&clean, 0)
}

/// Waits for the gate and signs it: a process in the gate holds up everybody behind it, so others must be able to tell
/// which one it is.
fn pass(gate: &File) -> io::Result<()> {
    gate.lock()?;
    holder::sign(gate);
    Ok(())
}

/// Proves that no handle is open in any process, and that none can be opened until this is dropped.
#[derive(Debug)]
pub(crate) struct Alone {
    poison: LockFile,
    // Dropped in this order: an opener that passes the gate must find neither of the others held.
    _claim: Option<FileClaim>,
    _open: LockFile,
    _gate: LockFile,
}

impl Alone {
    /// Returns `None` if a handle is open under this name. Waits while another process is opening the store.
    pub(crate) fn acquire(database: &Path) -> Result<Option<Alone>, FileError> {
        let folder = private::lock_folder(database)?;
        let settled = Instant::now() + SETTLE_MAX;
        loop {
            let Some(alone) = Alone::lock(&folder).map_err(FileError::io(&folder))? else { return Ok(None) };
            match FileClaim::acquire(database, true).map_err(FileError::io(database))? {
                Ok(claim) => return Ok(Some(Alone { _claim: claim, ..alone })),
                Err(_) if Instant::now() < settled => drop(alone),
                Err(unclaimed) => return Err(FileError::unclaimed(database, unclaimed)),
            }
            thread::sleep(SETTLE_PAUSE);
        }
    }

    fn lock(folder: &Path) -> io::Result<Option<Alone>> {
        let (gate, open) = (open_file(folder, "gate")?, open_file(folder, "open")?);
        let poison = open_file(folder, "poison")?;
        pass(&gate)?;
        match open.try_lock() {
            Ok(()) => Ok(Some(Alone { poison, _claim: None, _open: open, _gate: gate })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(crate) fn lower(&self) -> io::Result<()> {
        lower(&self.poison)
    }
}

/// An opener that holds the gate: until it is let in, nobody else can open the store or begin to write.
#[derive(Debug)]
pub(crate) struct GateEntry {
    pub(crate) locks: Locks,
    /// No other handle is open in any process. Only then may the tables be made or changed.
    pub(crate) alone: bool,
}

impl GateEntry {
    pub(crate) fn let_in(self) -> io::Result<Locks> {
        if self.alone {
            self.locks.open.unlock()?;
            self.locks.open.lock_shared()?;
        }
        self.locks.gate.unlock()?;
        Ok(self.locks)
    }
}

impl Locks {
    /// Waits for the gate. If no other handle is open in any process, this one must recover from the failure that
    /// raised the flag. The flag stays raised until then: an opener that fails before, or is killed, leaves the
    /// recovery to the next.
    pub(crate) fn enter(database: &Path) -> Result<GateEntry, FileError> {
        let folder = private::lock_folder(database)?;
        Locks::queue(&folder).map_err(FileError::io(&folder))
    }

    fn queue(folder: &Path) -> io::Result<GateEntry> {
        let gate = open_file(folder, "gate")?;
        let writer = open_file(folder, "writer")?;
        let poison = open_file(folder, "poison")?;
        let open = open_file(folder, "open")?;
        let presence = Presence::enter(folder)?;
        pass(&gate)?;
        let alone = match open.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let mut to_recover = None;
        if alone {
            to_recover = raised_text(&poison);
            if to_recover.is_none() {
                lower(&poison)?;
            }
        } else {
            open.lock_shared()?;
        }
        Ok(GateEntry {
            locks: Locks {
                folder: folder.to_owned(),
                claim: None,
                open,
                gate,
                writer,
                poison,
                presence,
                news: NewsTeller::new(folder),
                to_recover,
                poisoned: OnceLock::new(),
            },
            alone,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits for the write lock between processes. The gate makes the order first come, first served: a writer that has
    /// just finished queues behind those that wait, while SQLite's own busy handler would let it in again.
    pub(crate) fn write_lock(&self) -> io::Result<WriteLock<'_>> {
        pass(&self.gate)?;
        let writer = self.writer.lock();
        self.gate.unlock()?;
        writer.map(|()| WriteLock { listeners: holder::sign(&self.writer), file: &self.writer })
    }

    /// Returns the lock files that all handles and processes must share with this one.
    pub(crate) fn files(&self) -> [(PathBuf, &File); 4] {
        let file = |name: &str, file| (self.folder.join(name), file);
        [
            file("gate", &*self.gate),
            file("open", &*self.open),
            file("writer", &*self.writer),
            file("poison", &*self.poison),
        ]
    }

    /// Returns what holds back the next writer.
    pub(crate) fn held(&self) -> Option<HeldLock> {
        holder::find_held(&self.folder)
    }

    /// Lowers the flag, after recovery from the failure that raised it.
    pub(crate) fn lower(&self) -> io::Result<()> {
        lower(&self.poison)
    }

    /// Returns why nobody may write any more, if so.
    pub(crate) fn poisoned(&self) -> Option<&str> {
        if self.poisoned.get().is_none() {
            let text = raised_text(&self.poison)?;
            return Some(self.poisoned.get_or_init(|| text));
        }
        self.poisoned.get().map(String::as_str)
    }

    /// Stops this handle, and every other one on the same store. A flag that cannot be written changes nothing for this
    /// handle; the others then meet the same disk errors themselves.
    pub(crate) fn raise(&self, reason: &str) -> &str {
        let reason = self.poisoned.get_or_init(|| reason.to_owned());
        let mut bytes = [b' '; POISON_BYTES];
        bytes[0] = RAISED;
        for (slot, byte) in bytes[1..].iter_mut().zip(reason.bytes()) {
            *slot = byte;
        }
        let _ = self.poison.write_all_at(&bytes, 0).and_then(|()| self.poison.sync_data());
        reason
    }
}

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(crate) struct WriteLock<'a> {
    file: &'a File,
    /// The mark that the lock file had when the lock was got; `None` if it could not be read.
    pub(crate) listeners: Option<ListenersMark>,
}

impl WriteLock<'_> {
    /// Makes every later commit of any handle look for new listeners.
    pub(crate) fn announce_listener(&self) -> io::Result<()> {
        match self.listeners {
            Some(mark) => mark.raise(self.file),
            None => Err(io::Error::other("the lock file cannot be read")),
        }
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        // Unlocking fails only for a bad descriptor; closing the file would release the lock as well.
        let _ = self.file.unlock();
    }
}
