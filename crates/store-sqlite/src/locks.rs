//! The lock folder beside the database: fairness between writing processes, and the flag that stops them all.
//!
//! These are files of their own, because SQLite's locks on the database file vanish as soon as any descriptor of that
//! file is closed in the process: nothing in this crate ever opens the database except SQLite.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The poison file has its full size from the start, so that raising the flag on a full disk allocates nothing.
const POISON_BYTES: usize = 512;
const CLEAN: u8 = b'-';
const RAISED: u8 = b'!';

#[derive(Debug)]
pub(crate) struct Locks {
    gate: File,
    writer: File,
    poison: File,
    /// Held shared as long as the handle lives: whoever gets it exclusively is alone.
    _open: File,
    /// The flag was raised, and this handle, being alone, is the one to recover and lower it.
    pub(crate) to_recover: Option<String>,
    /// This handle's own knowledge: no file is needed to remember the handle's own failure.
    poisoned: OnceLock<String>,
}

/// `<database>-locks/`
pub(crate) fn folder(database: &Path) -> PathBuf {
    beside(database, "-locks")
}

/// The file whose name is that of `path` and something more.
pub(crate) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    PathBuf::from(name)
}

pub(crate) fn open_file(folder: &Path, name: &str) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(folder.join(name))
}

/// What stands in a raised flag. One that cannot be read counts as raised; an empty file is a new one.
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

/// No handle is open anywhere, and none can be opened until this is dropped.
#[derive(Debug)]
pub(crate) struct Alone {
    _gate: File,
    _open: File,
    poison: File,
}

impl Alone {
    /// `None` when somebody has the store open. Waits while somebody is opening it.
    pub(crate) fn take(database: &Path) -> io::Result<Option<Alone>> {
        let folder = folder(database);
        fs::create_dir_all(&folder)?;
        let (gate, open) = (open_file(&folder, "gate")?, open_file(&folder, "open")?);
        let poison = open_file(&folder, "poison")?;
        gate.lock()?;
        match open.try_lock() {
            Ok(()) => Ok(Some(Alone { _gate: gate, _open: open, poison })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(crate) fn lower(&self) -> io::Result<()> {
        lower(&self.poison)
    }
}

impl Locks {
    /// If no other handle is open anywhere, this one is to recover from what raised the flag. It stays raised until then:
    /// whoever fails on the way, or is killed, leaves the recovery to the next.
    pub(crate) fn open(database: &Path) -> io::Result<Locks> {
        let folder = folder(database);
        fs::create_dir_all(&folder)?;
        let gate = open_file(&folder, "gate")?;
        let writer = open_file(&folder, "writer")?;
        let poison = open_file(&folder, "poison")?;
        let open = open_file(&folder, "open")?;
        gate.lock()?;
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
            open.unlock()?;
        }
        open.lock_shared()?;
        gate.unlock()?;
        Ok(Locks { gate, writer, poison, _open: open, to_recover, poisoned: OnceLock::new() })
    }

    /// Waits for this process's turn to write. The gate makes it first come, first served: a writer that has just
    /// finished queues behind those that wait, where SQLite's own busy handler would let it in again.
    pub(crate) fn turn(&self) -> io::Result<Turn<'_>> {
        self.gate.lock()?;
        let writer = self.writer.lock();
        self.gate.unlock()?;
        writer.map(|()| Turn(&self.writer))
    }

    /// What raised the flag is made good.
    pub(crate) fn lower(&self) -> io::Result<()> {
        lower(&self.poison)
    }

    /// Why nobody may write any more, if so.
    pub(crate) fn poisoned(&self) -> Option<&str> {
        if self.poisoned.get().is_none() {
            let text = raised_text(&self.poison)?;
            return Some(self.poisoned.get_or_init(|| text));
        }
        self.poisoned.get().map(String::as_str)
    }

    /// Stops this handle, and every other one on the same store. That the flag itself cannot be written changes
    /// nothing for this handle; the others then meet the same disk on their own.
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
pub(crate) struct Turn<'a>(&'a File);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // An unlock fails only for a bad descriptor; closing the file would release it as well.
        let _ = self.0.unlock();
    }
}
