//! The copy of a shared store as a file under a server's cache folder.
//!
//! The file is a cache: the journal has everything. The file is locked by the server that uses it, readable by its user only,
//! and set aside instead of repaired.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use millrace_store::{Copies, CopyBounds, CopyPosition, FailureCause, Foldable, StoreError};
use rusqlite::{Connection, OpenFlags};

use crate::doctor::Doctor;
use crate::error::SqliteFault;
use crate::files::{folder, private};
use crate::locks::lock_folder::{self, beside};
use crate::locks::serve_lock::ServeLock;
use crate::offline::backup::{self, BackupError, COMPANIONS, Existing};
use crate::options::SqliteOptions;
use crate::store::SqliteStore;
use crate::writing::copy;

/// Why a copy was set aside when the engine has lost records: that file may hold the only trace of them, so it is kept.
const DIVERGED: &str = "diverged";
/// How many of those are kept. The events that were lost are listed in a file of their own (`write_beside`).
const DIVERGED_KEPT: usize = 3;
/// Damaged copies that are kept for examination; older ones are deleted.
const DAMAGED_KEPT: usize = 1;
/// How much of a snapshot is read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The file of a copy, open or not.
#[derive(Clone, Debug)]
pub struct SqliteCopies {
    path: PathBuf,
    options: SqliteOptions,
}

impl SqliteCopies {
    pub fn new(path: PathBuf, options: SqliteOptions) -> SqliteCopies {
        let mut options = options;
        options.is_copy = true;
        SqliteCopies { path, options }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether a handle, of this process or another, has the copy open.
    pub fn is_open(&self) -> bool {
        ServeLock::is_held(&self.path)
    }

    fn mark(&self) -> PathBuf {
        beside(&self.path, ".condemned")
    }

    fn open_file(&self, lock: ServeLock, bounds: &CopyBounds) -> Result<Arc<dyn Foldable>, StoreError> {
        let options = SqliteOptions { dedupe_ids_max: bounds.dedupe_ids_max, ..self.options.clone() };
        let store = SqliteStore::open_served(lock, options)?;
        match store.poisoned() {
            // A failed write of a cache: whatever the disk holds, the journal has it too.
            Some(reason) => Err(StoreError::Poisoned(reason.into())),
            None => Ok(Arc::new(store)),
        }
    }

    fn failed(&self, what: &str) -> impl Fn(io::Error) -> StoreError {
        let path = self.path.display().to_string();
        let what = what.to_owned();
        move |error| {
            let text = format!("{path}: {what}: {error}");
            let cause = FailureCause::new(text, error);
            StoreError::NoSpace(cause)
        }
    }

    fn fill(&self, snapshot: &mut dyn Read) -> Result<(), StoreError> {
        let partial = beside(&self.path, ".partial");
        let mut write = || -> io::Result<()> {
            let mut file = private::options().create(true).truncate(true).open(&partial)?;
            private::make_private(&file)?;
            io::copy(snapshot, &mut file)?;
            file.flush()?;
            file.sync_all()?;
            fs::rename(&partial, &self.path)?;
            folder::sync(folder::parent_of(&self.path))
        };
        write().map_err(|error| match error.kind() {
            // The snapshot itself is missing or damaged.
            io::ErrorKind::InvalidData => StoreError::Unusable(FailureCause::new(error.to_string(), error)),
            _ => self.failed("a snapshot could not be written")(error),
        })
    }

    /// Deletes files of the given reason, except the newest ones.
    fn forget_aside(&self, reason: &str, kept: usize) -> io::Result<()> {
        let prefix = format!("{}.{reason}-", self.path.file_name().unwrap_or_default().to_string_lossy());
        let mut found: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder::parent_of(&self.path))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.strip_prefix(&prefix).is_some_and(|time| time.bytes().all(|byte| byte.is_ascii_digit())) {
                found.push(entry.path());
            }
        }
        found.sort();
        let many = found.len().saturating_sub(kept);
        for path in &found[..many] {
            fs::remove_file(path)?;
            remove_if_there(&beside(path, "-wal"))?;
            remove_folder_if_there(&lock_folder::folder(path))?;
        }
        Ok(())
    }
}

impl Copies for SqliteCopies {
    fn open(&self, bounds: &CopyBounds) -> Result<Option<Arc<dyn Foldable>>, StoreError> {
        if !self.is_there()? {
            return Ok(None);
        }
        self.open_file(ServeLock::acquire(&self.path)?, bounds).map(Some)
    }

    fn is_there(&self) -> Result<bool, StoreError> {
        self.path.try_exists().map_err(self.failed("it cannot be looked at"))
    }

    fn create(
        &self,
        snapshot: Option<&mut dyn Read>,
        bounds: &CopyBounds,
    ) -> Result<Arc<dyn Foldable>, StoreError> {
        let parent = folder::parent_of(&self.path);
        folder::create(parent).map_err(self.failed("its folder cannot be made"))?;
        let lock = ServeLock::acquire(&self.path)?;
        self.remove_leftovers().map_err(self.failed("what is left of an older copy cannot be removed"))?;
        if let Some(snapshot) = snapshot {
            self.fill(snapshot)?;
        }
        self.open_file(lock, bounds)
    }

    fn set_aside(&self, reason: &str) -> Result<String, StoreError> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let to = beside(&self.path, &format!(".{reason}-{now_ms}"));
        // A process that still has the copy open would delete the log of the new one when it closes its own.
        let _lock = ServeLock::acquire(&self.path)?;
        // A crash between the two renames leaves a database without its log, which must not be taken for whole: the mark
        // is removed last.
        self.condemn(reason)?;
        let rename = || -> io::Result<()> {
            let log = beside(&self.path, "-wal");
            if log.try_exists()? {
                fs::rename(&log, beside(&to, "-wal"))?;
            }
            if self.path.try_exists()? {
                fs::rename(&self.path, &to)?;
            }
            remove_if_there(&beside(&self.path, "-shm"))?;
            remove_folder_if_there(&lock_folder::folder(&self.path))?;
            folder::sync(folder::parent_of(&self.path))?;
            remove_if_there(&self.mark())?;
            folder::sync(folder::parent_of(&self.path))?;
            match reason {
                DIVERGED => self.forget_aside(reason, DIVERGED_KEPT),
                "damaged" | "mismatched" => self.forget_aside(reason, DAMAGED_KEPT),
                _ => self.forget_aside(reason, 0),
            }
        };
        rename().map_err(self.failed("it cannot be set aside"))?;
        Ok(to.display().to_string())
    }

    fn condemn(&self, reason: &str) -> Result<(), StoreError> {
        let write = || -> io::Result<()> {
            let mut file = private::options().create(true).truncate(true).open(self.mark())?;
            file.write_all(reason.as_bytes())?;
            file.sync_all()?;
            folder::sync(folder::parent_of(&self.path))
        };
        write().map_err(self.failed("it cannot be marked"))
    }

    fn condemned(&self) -> Result<Option<String>, StoreError> {
        match fs::read_to_string(self.mark()) {
            // A mark that was cut short by a full disk still says that the copy is bad.
            Ok(reason) if reason.is_empty() => Ok(Some("damaged".to_owned())),
            Ok(reason) => {
                let is_word = reason.bytes().all(|byte| byte.is_ascii_lowercase());
                Ok(Some(if is_word { reason } else { "damaged".to_owned() }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("its mark cannot be read")(error)),
        }
    }

    fn open_aside(&self, aside: &str) -> Result<Arc<dyn Foldable>, StoreError> {
        Ok(Arc::new(SqliteStore::open(Path::new(aside), self.options.clone())?))
    }

    fn write_beside(&self, suffix: &str, bytes: &[u8]) -> Result<String, StoreError> {
        let path = beside(&self.path, suffix);
        let write = || -> io::Result<()> {
            let mut file = private::options().create(true).truncate(true).open(&path)?;
            private::make_private(&file)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            folder::sync(folder::parent_of(&path))
        };
        write().map_err(self.failed("a file beside it cannot be written"))?;
        Ok(path.display().to_string())
    }

    fn snapshot(
        &self,
        write: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<CopyPosition, StoreError> {
        let target = beside(&self.path, ".snapshot");
        backup::backup(&self.path, &target, Existing::Replace).map_err(not_copied)?;
        let written = refuse_damaged(&target).and_then(|()| self.send_file(&target, write));
        // The next snapshot replaces a file that could not be removed.
        let _ = fs::remove_file(&target);
        written
    }
}

impl SqliteCopies {
    /// Removes what an older copy has left under names that a new one uses. Its file is gone, so all of it is useless: a
    /// log without its database, and the flag of a failed write.
    fn remove_leftovers(&self) -> io::Result<()> {
        if self.path.try_exists()? {
            return Ok(());
        }
        for suffix in COMPANIONS {
            remove_if_there(&beside(&self.path, suffix))?;
        }
        remove_if_there(&lock_folder::folder(&self.path).join("poison"))
    }

    fn send_file(
        &self,
        file: &Path,
        write: &mut dyn FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<CopyPosition, StoreError> {
        let position = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .map_err(SqliteFault::from)
            .and_then(|conn| copy::load_position(&conn))
            .map_err(SqliteFault::unreadable)?;
        let Some(position) = position else {
            return Err(StoreError::Unreadable("the copy has lost its position".into()));
        };
        let failed = self.failed("its snapshot cannot be read");
        let mut source = File::open(file).map_err(&failed)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match source.read(&mut chunk).map_err(&failed)? {
                0 => return Ok(position),
                count => write(&chunk[..count])?,
            }
        }
    }
}

/// Refuses a snapshot with any row that fails its checksum. SQLite copies such a row as it is; in a snapshot it would be
/// lost for everybody as soon as the journal is trimmed.
fn refuse_damaged(snapshot: &Path) -> Result<(), StoreError> {
    let doctor = Doctor::open(snapshot)
        .map_err(|error| StoreError::Busy(FailureCause::new(error.to_string(), error)))?;
    match doctor.first_problem() {
        Some(problem) => Err(StoreError::Unreadable(format!("a snapshot was not made: {problem}").into())),
        None => Ok(()),
    }
}

fn not_copied(error: BackupError) -> StoreError {
    let is_damaged = matches!(&error, BackupError::Sqlite { source, .. } if SqliteFault::is_damage(source));
    let cause = FailureCause::new(error.to_string(), error);
    if is_damaged { StoreError::Unreadable(cause) } else { StoreError::Busy(cause) }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove_folder_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
