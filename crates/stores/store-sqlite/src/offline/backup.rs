//! Backup: a whole, consistent copy of a store in one file, also while the store is being written to.
//!
//! `VACUUM INTO` makes the copy in one read transaction: everything committed before is in it, nothing committed later
//! is, and writers do not wait. The copy is written beside its final name, synced, and renamed. A crash leaves the
//! unfinished copy as `NAME.partial`, which the next backup to the same name takes over.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::files::file_error::FileError;
use crate::files::{folder, private, real_path};
use crate::locks::lock_folder;
use crate::offline::restore::{REPLACED, RESTORING};
use crate::opening::read_only::{self, ReadOnlyError};
use crate::rows::schema::{self, MIGRATIONS, Refused};

/// The suffixes of files that SQLite may have put beside a database.
pub(crate) const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Those of them whose content SQLite would copy into any database that stands beside them.
pub(crate) const LOGS: [&str; 2] = ["-wal", "-journal"];

/// Whether to overwrite a file that already has the target's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Keep,
    Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub events: u64,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    ReadOnly(#[from] ReadOnlyError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} cannot be copied: {why}", .path.display())]
    NoStore { path: PathBuf, why: String },
    #[error("{} is there already: --force replaces it", .0.display())]
    Exists(PathBuf),
    #[error("{} is the store itself: choose another file", .0.display())]
    Itself(PathBuf),
    #[error("{} is a file of the database {}: choose another", .path.display(), .of.display())]
    Part { path: PathBuf, of: PathBuf },
    #[error("{} has a log of its own, {}, which would get into the copy: choose another file", .path.display(), .log.display())]
    HasLog { path: PathBuf, log: PathBuf },
    #[error("{} belongs to somebody else, or is no plain file: remove it, or choose another name", .0.display())]
    Foreign(PathBuf),
    #[error("another process is writing {}: wait for it, or choose another file", .0.display())]
    Busy(PathBuf),
    #[error(
        "{} is missing, and its log {} is there: put the store's file back, or move the log away; --force deletes it",
        .store.display(), .log.display()
    )]
    OrphanedLog { store: PathBuf, log: PathBuf },
    #[error(
        "the log of {} cannot be copied into it ({source}), so it was not replaced, and stays as it is: see to that and try \
         again, or move the store and its -wal away",
        .path.display()
    )]
    OldStore { path: PathBuf, source: rusqlite::Error },
    #[error("{0}")]
    InUse(String),
    #[error("{} cannot be copied: {source}; `millrace doctor` says what is wrong with it", .path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl BackupError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> BackupError {
        move |source| BackupError::Io { path: path.to_owned(), source }
    }
}

/// Copies the store at `database` to `target`. Symbolic links are followed for both.
pub fn backup(database: &Path, target: &Path, existing: Existing) -> Result<Copied, BackupError> {
    let (named, database, target) = (database, &real_path::of(database)?, &real_path::of(target)?);
    let conn = open_source(named)?;
    let partial = lock_folder::beside(target, ".partial");
    refuse_part(database, target)?;
    refuse_part(database, &partial)?;
    refuse_log(target)?;
    refuse_existing(target, existing)?;
    let partial = Partial::claim(&partial)?;
    let copied = partial.fill(&conn, database)?;
    refuse_existing(target, existing)?;
    partial.rename_to(target)?;
    Ok(copied)
}

/// Opens a Millrace store of any version that this build knows.
pub(crate) fn open_source(path: &Path) -> Result<Connection, BackupError> {
    let conn = read_only::open(path)?;
    let why = match schema::version(&conn, MIGRATIONS) {
        Ok(0) => "it is empty".to_owned(),
        Ok(_) => return Ok(conn),
        Err(Refused::Foreign) => "it is no Millrace store".to_owned(),
        Err(Refused::Newer { found }) => {
            format!("its schema version is {found}, this build knows up to {}", MIGRATIONS.len())
        }
        Err(Refused::Failed(source)) => return Err(BackupError::Sqlite { path: path.to_owned(), source }),
    };
    Err(BackupError::NoStore { path: path.to_owned(), why })
}

pub(crate) fn refuse_existing(target: &Path, existing: Existing) -> Result<(), BackupError> {
    let there = target.symlink_metadata().is_ok();
    if there && (existing == Existing::Keep || target.is_dir()) {
        return Err(BackupError::Exists(target.to_owned()));
    }
    Ok(())
}

/// Refuses a target that is part of a database: a file of the store itself, or a file that stands beside another
/// database.
fn refuse_part(database: &Path, target: &Path) -> Result<(), BackupError> {
    if is_same(database, target) {
        return Err(BackupError::Itself(target.to_owned()));
    }
    let part = |of: &Path| BackupError::Part { path: target.to_owned(), of: of.to_owned() };
    if is_same(&lock_folder::folder(database), folder::parent_of(target)) {
        return Err(part(database));
    }
    let name = target.to_string_lossy();
    let parts = COMPANIONS.iter().chain(&[REPLACED, RESTORING]);
    let mut bases = parts.filter_map(|companion| name.strip_suffix(companion)).map(Path::new);
    bases.find(|base| base.is_file()).map_or(Ok(()), |base| Err(part(base)))
}

/// Refuses a target that has a log beside it: that database is in use, or its process was killed.
fn refuse_log(target: &Path) -> Result<(), BackupError> {
    let mut logs = LOGS.iter().map(|log| lock_folder::beside(target, log));
    match logs.find(|log| log.metadata().is_ok_and(|log| log.len() > 0)) {
        Some(log) => Err(BackupError::HasLog { path: target.to_owned(), log }),
        None => Ok(()),
    }
}

pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The file that a copy is written to, owned by this process alone. Removed when dropped before it was put in place.
#[derive(Debug)]
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    placed: bool,
}

impl Partial {
    pub(crate) fn claim(path: &Path) -> Result<Partial, BackupError> {
        let io = BackupError::io(path);
        let file = match private::options().create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => take_over(path)?,
            made => made.map_err(&io)?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BackupError::Busy(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
        // A crash may have left content: SQLite copies only into an empty file, and must not roll an old journal back
        // into ours.
        file.set_len(0).and_then(|()| private::make_private(&file)).map_err(&io)?;
        remove_if_there(&lock_folder::beside(path, "-journal"))?;
        Ok(Partial { path: path.to_owned(), file, placed: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies everything that `source` holds and syncs the copy.
    pub(crate) fn fill(&self, source: &Connection, of: &Path) -> Result<Copied, BackupError> {
        let io = BackupError::io(&self.path);
        let failed = |source| BackupError::Sqlite { path: of.to_owned(), source };
        let name = self.path.to_str().ok_or_else(|| {
            io(io::Error::new(io::ErrorKind::InvalidInput, "the path of a copy must be UTF-8"))
        })?;
        source.execute("VACUUM INTO ?1", [name]).map_err(failed)?;
        let events = count_events(&self.path).map_err(failed)?;
        self.file.sync_all().map_err(&io)?;
        Ok(Copied { events, bytes: self.file.metadata().map_err(&io)?.len() })
    }

    /// Migrates a copy with an older schema version to this build's version, and syncs the copy.
    pub(crate) fn bring_forward(&self) -> Result<(), BackupError> {
        let failed = |source| BackupError::Sqlite { path: self.path.clone(), source };
        let mut conn = Connection::open(&self.path).map_err(failed)?;
        schema::migrate(&mut conn, MIGRATIONS).map_err(|refused| match refused {
            Refused::Failed(source) => failed(source),
            Refused::Foreign | Refused::Newer { .. } => {
                BackupError::NoStore { path: self.path.clone(), why: "its version is not known".to_owned() }
            }
        })?;
        drop(conn);
        self.file.sync_all().map_err(BackupError::io(&self.path))
    }

    /// Renames the copy to its final name, durably.
    pub(crate) fn rename_to(mut self, target: &Path) -> Result<(), BackupError> {
        fs::rename(&self.path, target).map_err(BackupError::io(target))?;
        self.placed = true;
        sync_folder_of(target)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.placed {
            // The next attempt takes over a file that could not be removed.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens the copy that a crash left. Refuses a file or link that somebody else may have put there to get at the copied
/// data, in a folder that others can write to.
fn take_over(path: &Path) -> Result<File, BackupError> {
    let io = BackupError::io(path);
    let found = path.symlink_metadata().map_err(&io)?;
    if !found.is_file() || found.nlink() > 1 || found.uid() != private::user() {
        return Err(BackupError::Foreign(path.to_owned()));
    }
    private::options().open(path).map_err(&io)
}

fn count_events(path: &Path) -> rusqlite::Result<u64> {
    let conn = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0)).map(|count| count as u64)
}

pub(crate) fn remove_if_there(path: &Path) -> Result<(), BackupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BackupError::io(path)(error)),
        _ => Ok(()),
    }
}

/// Syncs the folder of a file: a new name is durable only when its folder is.
pub(crate) fn sync_folder_of(path: &Path) -> Result<(), BackupError> {
    let folder = folder::parent_of(path);
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::io(folder))
}
