//! Retiring a store whose files have lost their names (`names.rs`): stops all writing, after saving the data that would
//! be lost with this process.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use millrace_model::Durability;
use millrace_store::{FailureCause, StoreError};

use crate::files::names::Lost;
use crate::locks::lock_folder;
use crate::offline::backup::{BackupError, Copied, Partial};
use crate::store_core::StoreCore;
use crate::writing::transaction::Writer;

/// The suffix of the copy of a store whose file was removed while this process had it open.
pub(crate) const RESCUED: &str = "-rescued";
/// How long to wait for readers of the log.
const READERS_WAIT: Duration = Duration::from_secs(2);
/// How many such copies are kept beside each other.
const COPIES_MAX: u32 = 100;

impl StoreCore {
    pub(crate) fn misplaced(&self) -> Option<String> {
        self.names.lost(self.path(), &self.locks).map(|lost| lost.what(self.path()))
    }

    /// Stops writing for good, here and in every process that shares the lock files. Returns what has happened and what
    /// to do. After an error nothing can be written until a later call succeeds.
    pub(crate) fn retire_now(&self) -> Result<String, StoreError> {
        let mut writer = self.writer();
        if let Some(reason) = self.locks.poisoned() {
            return Ok(reason.to_owned());
        }
        // From here on no commit is confirmed, so the data saved below is complete.
        self.suspended.store(true, Relaxed);
        let _write_lock =
            self.locks.write_lock().map_err(|error| StoreError::Busy(FailureCause::of(error)))?;
        let told = self.save(&mut writer)?;
        self.locks.raise(&told);
        writer.leave_the_wal();
        Ok(told)
    }

    fn save(&self, writer: &mut Writer) -> Result<String, StoreError> {
        let path = self.path().display();
        let Some(lost) = self.names.lost(self.path(), &self.locks) else {
            return Ok(format!(
                "files of {path} had lost their names and have them again: start the server again"
            ));
        };
        let what = lost.what(self.path());
        if lost == Lost::Removed {
            return self.rescue(writer).map(|saved| format!("{what}. {saved}"));
        }
        let emptied = empty_log(writer);
        let next = match (&lost, emptied) {
            (Lost::Moved { .. }, true) => format!(
                "Everything confirmed is in that file: give it its name back (`mv` it to {path}), then start the server again"
            ),
            (Lost::Moved { .. }, false) => format!(
                "Everything confirmed is in that file and {path}-wal, which belong together: give the file its name back \
                 (`mv` it to {path}), then start the server again"
            ),
            (Lost::Log(_), false) => return self.rescue(writer).map(|saved| format!("{what}. {saved}")),
            (Lost::Log(_) | Lost::Lock(_), true) => {
                format!("Everything confirmed is in {path}: start the server again")
            }
            (Lost::Lock(_) | Lost::Removed, false) => {
                format!("Everything confirmed is in {path} and {path}-wal: start the server again")
            }
            (Lost::Removed, true) => String::new(),
        };
        Ok(format!("{what}. {next}; end every other process that has the store open as well"))
    }

    /// Copies everything to a file beside the name of the store, like a backup.
    fn rescue(&self, writer: &Writer) -> Result<String, StoreError> {
        let target = self.free_name();
        let saved = self.copy_to(writer, &target);
        let Copied { events, .. } = saved.map_err(|error| {
            let text = format!(
                "the store has no name any more, and what it holds cannot be saved to {}: {error}. See to that; do not end \
                 process {} before, or everything is gone",
                target.display(),
                std::process::id()
            );
            StoreError::NoSpace(FailureCause::new(text, error))
        })?;
        let (path, target) = (self.path().display(), target.display());
        Ok(format!(
            "Everything confirmed was saved to {target} ({events} events): `millrace restore {target} --force --store \
             sqlite:///{path}` makes it the store again; then start the server"
        ))
    }

    fn copy_to(&self, writer: &Writer, target: &Path) -> Result<Copied, BackupError> {
        let partial = Partial::claim(&lock_folder::beside(target, ".partial"))?;
        let copied = partial.fill(&writer.conn, self.path())?;
        partial.rename_to(target)?;
        Ok(copied)
    }

    fn free_name(&self) -> PathBuf {
        let first = lock_folder::beside(self.path(), RESCUED);
        let more = (2..COPIES_MAX).map(|n| lock_folder::beside(&first, &format!("-{n}")));
        let mut names = std::iter::once(first.clone()).chain(more);
        names.find(|name| name.symlink_metadata().is_err()).unwrap_or(first)
    }
}

/// Copies the log into the database and empties it. Returns whether that succeeded, so that the database file is
/// complete by itself.
fn empty_log(writer: &mut Writer) -> bool {
    // At this level SQLite syncs the log before copying it, and the database before truncating the log.
    writer.sync_level(Durability::Fsync).is_ok()
        && writer.conn.busy_timeout(READERS_WAIT).is_ok()
        && writer.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0))
            == Ok(false)
}
