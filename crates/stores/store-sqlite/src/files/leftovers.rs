//! The files that an interrupted restore or first start left beside the name of a store. If a new store would hide or
//! delete any of them, or if the store has lost its log, no command continues; the error says what to do.

use std::path::Path;

use crate::files::file_error::FileError;
use crate::files::retire::RESCUED;
use crate::locks::lock_folder;
use crate::offline::backup::LOGS;
use crate::offline::restore::{REPLACED, RESTORING};
use crate::opening::open::is_missing_or_empty;

/// Checks for such files; called by every command that is about to open or to read the store. `database` is its real
/// path.
pub(crate) fn refuse(database: &Path) -> Result<(), FileError> {
    if is_missing_or_empty(database) { refuse_new(database) } else { refuse_parted(database) }
}

/// Where the store is missing, the files beside its name may be all that is left of it. A new store would hide them,
/// and SQLite would delete the log.
fn refuse_new(database: &Path) -> Result<(), FileError> {
    let store = database.to_owned();
    let (replaced, copy) =
        (lock_folder::beside(database, REPLACED), lock_folder::beside(database, RESTORING));
    if replaced.symlink_metadata().is_ok() {
        return Err(FileError::CutRestore { store, replaced });
    }
    if copy.symlink_metadata().is_ok() {
        return Err(FileError::CutCopy { store, copy });
    }
    let rescued = lock_folder::beside(database, RESCUED);
    if rescued.symlink_metadata().is_ok() {
        return Err(FileError::Rescued { store, rescued });
    }
    // A rollback journal holds the old pages of a database that is being changed. An empty file had no pages: a first
    // start leaves such a file when it is killed before SQLite has written the first page.
    let protects = |log: &str| log == "-wal" || database.symlink_metadata().is_err();
    let mut logs = LOGS.iter().filter(|log| protects(log)).map(|log| lock_folder::beside(database, log));
    match logs.find(|log| !is_missing_or_empty(log)) {
        Some(log) => Err(FileError::OrphanedLog { store, log }),
        None => Ok(()),
    }
}

/// A restore removes a log that it moved aside before it removes the store it belongs to (`-replaced`), so the log is
/// never alone. A log alone was parted from the store that still has its name, by a power failure in a restore of an
/// older version.
fn refuse_parted(database: &Path) -> Result<(), FileError> {
    let replaced = lock_folder::beside(database, REPLACED);
    if replaced.symlink_metadata().is_ok() {
        return Ok(());
    }
    for suffix in LOGS {
        let (own, log) = (lock_folder::beside(database, suffix), lock_folder::beside(&replaced, suffix));
        if is_missing_or_empty(&own) && !is_missing_or_empty(&log) {
            return Err(FileError::PartedLog { store: database.to_owned(), log, own });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Puts these files in a folder and returns why a store may not be opened or made there, if so.
    fn refused(files: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        refuse(&folder.path().join("s.db")).err().map(|error| error.to_string())
    }

    #[test]
    fn a_first_start_that_was_killed_may_begin_again() {
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&[("s.db", "")]), None);
        assert_eq!(refused(&[("s.db", ""), ("s.db-journal", "pages")]), None);
        assert_eq!(refused(&[("s.db", ""), ("s.db-wal", "")]), None);
    }

    #[test]
    fn a_log_without_its_store_is_not_deleted() {
        for files in [
            &[("s.db-journal", "pages")][..],
            &[("s.db-wal", "frames")],
            &[("s.db", ""), ("s.db-wal", "frames")],
        ] {
            let refused = refused(files).unwrap();
            assert!(
                refused.contains("its log") && refused.contains("put the store's file back"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_store_is_not_opened_without_the_log_that_stepped_aside_alone() {
        let (store, aside) = (("s.db", "pages"), ("s.db-replaced-wal", "frames"));
        let message = refused(&[store, aside]).unwrap();
        for part in ["no log of its own", "s.db-replaced-wal", "restore --force", "rename", "s.db-wal"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(refused(&[store, ("s.db-replaced-journal", "pages")]).is_some());
        // No refusal if the replaced store is there too and owns the log, if the store has a log of its own, or if the
        // log is empty.
        assert_eq!(refused(&[store, aside, ("s.db-replaced", "")]), None);
        assert_eq!(refused(&[store, aside, ("s.db-wal", "frames")]), None);
        assert_eq!(refused(&[store, ("s.db-replaced-wal", "")]), None);
    }
}
