//! Whether the files that a handle has open still have their names. A file keeps its content when it is moved or
//! removed, and can still be written to; but the next process that opens it by its name finds another file, or none,
//! and does not see what this process confirms.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::locks::file_claim::FileId;
use crate::locks::lock_folder::{self, Locks};

/// The files under these names when the store was opened.
#[derive(Debug)]
pub(crate) struct FileNames {
    database: Option<FileId>,
    /// The log and the index of the log.
    logs: Vec<(PathBuf, FileId)>,
    locks: Vec<(PathBuf, FileId)>,
}

/// Which file has lost its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The database has another name now, given if the system tells it.
    Moved { to: Option<PathBuf> },
    /// The database has no name any more: it is gone when the last process closes it.
    Removed,
    /// A file beside the database: the log or its index.
    Log(PathBuf),
    /// A lock file: processes that open the store now do not see this one's locks.
    Lock(PathBuf),
}

impl FileNames {
    /// Notes the names. Must be called after SQLite has opened the log.
    pub(crate) fn note(database: &Path, locks: &Locks) -> FileNames {
        let logs = ["-wal", "-shm"].map(|more| lock_folder::beside(database, more));
        let noted = |path: PathBuf| fs::metadata(&path).ok().map(|found| (path, FileId::of(&found)));
        let lock_files = locks.files();
        let lock_files = lock_files.into_iter().filter_map(|(path, file)| {
            let found = file.metadata().ok()?;
            Some((path, FileId::of(&found)))
        });
        // A server takes its own lock before it opens the store.
        let serve = noted(lock_folder::folder(database).join("serve"));
        FileNames {
            database: locks.claim.as_ref().map(|claim| claim.id()),
            logs: logs.into_iter().filter_map(noted).collect(),
            locks: lock_files.chain(serve).collect(),
        }
    }

    /// Returns which file has lost its name, the worst case first. A file that cannot be examined counts as present.
    pub(crate) fn lost(&self, database: &Path, locks: &Locks) -> Option<Lost> {
        if self.database.is_some_and(|id| !has_name(database, id)) {
            let claim = locks.claim.as_ref()?;
            let is_removed = claim.file().metadata().is_ok_and(|found| found.nlink() == 0);
            return Some(if is_removed { Lost::Removed } else { Lost::Moved { to: name_of(claim.file()) } });
        }
        let lost = |files: &[(PathBuf, FileId)]| {
            files.iter().find(|(path, id)| !has_name(path, *id)).map(|(path, _)| path.clone())
        };
        lost(&self.logs).map(Lost::Log).or_else(|| lost(&self.locks).map(Lost::Lock))
    }
}

fn has_name(path: &Path, id: FileId) -> bool {
    match fs::metadata(path) {
        Ok(found) => FileId::of(&found) == id,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Returns the name that an open file has now, if it can be verified. Linux only.
fn name_of(file: &fs::File) -> Option<PathBuf> {
    let name = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let id = |found: Metadata| FileId::of(&found);
    (fs::metadata(&name).map(id).ok()? == file.metadata().map(id).ok()?).then_some(name)
}

impl Lost {
    /// Describes what has happened, as a sentence about `database`.
    pub(crate) fn what(&self, database: &Path) -> String {
        let path = database.display();
        match self {
            Lost::Moved { to: Some(to) } => {
                format!("{path} was moved to {} while it was in use", to.display())
            }
            Lost::Moved { to: None } => format!("{path} was moved or replaced while it was in use"),
            Lost::Removed => format!("{path} was removed or replaced while it was in use"),
            Lost::Log(log) => format!("{} was removed or replaced while the store was in use", log.display()),
            Lost::Lock(lock) => {
                format!("{} was removed or replaced while the store was in use", lock.display())
            }
        }
    }
}
