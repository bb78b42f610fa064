//! Why the files of a store are refused before SQLite opens them.

use std::io;
use std::path::{Path, PathBuf};

use millrace_store::{FailureCause, StoreError};

use crate::locks::file_claim::Unclaimed;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{} has {names} names (hard links): its locks and its log lie beside one name only, so processes that use \
         different names would not see each other; {keep}",
        .path.display()
    )]
    Linked { path: PathBuf, names: u64, keep: String },
    #[error(
        "{} is open{} under another name, with a log and locks that do not lie here: it was moved, or its lock folder was \
         removed, while it was in use. Stop that process first; then give the file its old name back, beside its -wal",
        .path.display(), in_process(*.holder)
    )]
    OtherName { path: PathBuf, holder: Option<u32> },
    #[error(
        "{} is not the file that other processes have open under this name: it was replaced while it was in use. \
         Stop every process that has the store open, and put the right file back",
        .0.display()
    )]
    OtherFile(PathBuf),
    #[error(
        "{} is already served{}, whose lock file `serve` was removed meanwhile: stop that process, or serve another store",
        .path.display(), in_process(*.holder)
    )]
    Served { path: PathBuf, holder: Option<u32> },
    #[error(
        "{} belongs to user {owner} and this process runs as user {user}: somebody may have put it there to read what is \
         written to it. Run as user {owner}, or remove the file if it is not yours",
        .path.display()
    )]
    ForeignStore { path: PathBuf, owner: u32, user: u32 },
    #[error(
        "the lock folder {} belongs to user {owner} and this process runs as user {user}: run it as user {owner}, or \
         remove the folder while no process has the store open",
        .folder.display()
    )]
    ForeignLocks { folder: PathBuf, owner: u32, user: u32 },
    #[error("the lock folder {} is no folder: remove it while no process has the store open", .0.display())]
    NoLockFolder(PathBuf),
    #[error(
        "others can write to the lock folder {} (mode {mode:04o}) and so stop every commit: make sure that nobody has \
         put anything there, then `chmod 700` it",
        .folder.display()
    )]
    SharedLocks { folder: PathBuf, mode: u32 },
    #[error(
        "{} is missing or empty, and {} lies beside it: a restore was cut short. Run `millrace restore --force` again to \
         finish it; or rename that file (and its -wal, if there is one) to the name of the store to go back to the one \
         that was to be replaced",
        .store.display(), .replaced.display()
    )]
    CutRestore { store: PathBuf, replaced: PathBuf },
    #[error(
        "{} is missing or empty, and {} lies beside it: a restore was cut short. Run `millrace restore` again to finish \
         it, or remove that file to begin with a new store",
        .store.display(), .copy.display()
    )]
    CutCopy { store: PathBuf, copy: PathBuf },
    #[error(
        "{} is missing or empty, and {} lies beside it: the store was removed while a server had it open, which saved \
         everything there. `millrace restore {} --force` makes it the store again; remove it to begin with a new store",
        .store.display(), .rescued.display(), .rescued.display()
    )]
    Rescued { store: PathBuf, rescued: PathBuf },
    #[error(
        "{} is missing or empty, and its log {} is there, which a new store would delete: put the store's file back, or \
         move the log away to begin with a new store",
        .store.display(), .log.display()
    )]
    OrphanedLog { store: PathBuf, log: PathBuf },
    #[error(
        "{} has no log of its own, and {} lies beside it: a power failure in a restore may have parted the store from its \
         log. Run `millrace restore --force` again to finish it; or rename that file to {} to go back to the store that was \
         to be replaced; remove it only if that restore had come to its end",
        .store.display(), .log.display(), .own.display()
    )]
    PartedLog { store: PathBuf, log: PathBuf, own: PathBuf },
}

fn in_process(holder: Option<u32>) -> String {
    holder.map_or_else(|| " in another process".to_owned(), |pid| format!(" in process {pid}"))
}

impl FileError {
    pub(crate) fn unclaimed(path: &Path, unclaimed: Unclaimed) -> FileError {
        let path = path.to_owned();
        match unclaimed {
            Unclaimed::OtherName { holder } => FileError::OtherName { path, holder },
            Unclaimed::OtherFile => FileError::OtherFile(path),
            Unclaimed::Served { holder } => FileError::Served { path, holder },
        }
    }

    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> FileError {
        move |source| FileError::Io { path: path.to_owned(), source }
    }
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> StoreError {
        match error {
            FileError::OtherName { .. } | FileError::Served { .. } => {
                StoreError::InUse(FailureCause::of(error))
            }
            FileError::Io { ref path, source } => {
                let text = format!("{}: {source}", path.display());
                StoreError::Unusable(FailureCause::new(text, source))
            }
            error => StoreError::Unusable(FailureCause::of(error)),
        }
    }
}
