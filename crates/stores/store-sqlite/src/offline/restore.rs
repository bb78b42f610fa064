//! Restore: a backup becomes the store, in two steps, so that exactly the file that will be put in place can be
//! examined first.
//!
//! Nobody has the store open meanwhile, and nobody can open it. Wherever the process is killed or the power fails, the
//! old store or the new one is whole under the store's name: the old store is first made whole without its log, then
//! the copy takes its name in a single rename. Only a store that SQLite cannot open, and whose log therefore cannot be
//! copied into it, is moved aside first, together with its log; while its name is free, nobody makes a new store there
//! (`leftovers.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_store::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::SqliteFault;
use crate::files::file_error::FileError;
use crate::files::{folder, private, real_path};
use crate::locks::lock_folder::{self, Alone};
use crate::locks::serve_lock::ServeLock;
use crate::offline::backup::{self, BackupError, COMPANIONS, Copied, Existing, LOGS, Partial};
use crate::opening::open::is_missing_or_empty;

/// The suffix of the copy, until it takes the store's name.
pub(crate) const RESTORING: &str = "-restoring";
/// The suffix of a replaced store that SQLite cannot open, until the new one is in place. Older versions moved every
/// store there.
pub(crate) const REPLACED: &str = "-replaced";
/// How long to wait for readers (`backup`, `doctor`) of the old store.
const READERS_WAIT: Duration = Duration::from_secs(10);

/// A copy that is ready to become the store. If it is dropped instead, everything stays as it was.
#[derive(Debug)]
pub struct Restore {
    partial: Partial,
    copied: Copied,
    database: PathBuf,
    alone: Alone,
    _serve: ServeLock,
}

impl Restore {
    /// Copies `backup` beside `database` and keeps everybody else from opening the database.
    pub fn prepare(backup: &Path, database: &Path, existing: Existing) -> Result<Restore, BackupError> {
        let database = real_path::of_store(database)?;
        let (partial, replaced) =
            (lock_folder::beside(&database, RESTORING), lock_folder::beside(&database, REPLACED));
        if backup::is_same(backup, &replaced) {
            return Err(FileError::CutRestore { store: database, replaced }.into());
        }
        let source = backup::open_source(backup)?;
        if backup::is_same(backup, &database) || backup::is_same(backup, &partial) {
            return Err(BackupError::Itself(backup.to_owned()));
        }
        let refuse_existing = || {
            backup::refuse_existing(&database, existing)?;
            backup::refuse_existing(&replaced, existing)?;
            refuse_logs(&database, &replaced, existing)
        };
        refuse_existing()?;
        let parent = folder::parent_of(&database);
        folder::create(parent).map_err(BackupError::io(parent))?;
        let serve = ServeLock::acquire(&database).map_err(|error| match error {
            // The advice for a server behind the semicolon does not apply here.
            StoreError::InUse(who) => {
                let who = who.text();
                let who = who.rsplit_once("; ").map_or(who, |(who, _)| who);
                BackupError::InUse(format!("{who}: stop it first"))
            }
            error => BackupError::InUse(error.to_string()),
        })?;
        let alone = Alone::acquire(&database)?.ok_or_else(|| {
            BackupError::InUse(format!("a process has {} open: stop it first", database.display()))
        })?;
        // Checked again, now that nobody can make a store any more.
        refuse_existing()?;
        let partial = Partial::claim(&partial)?;
        let copied = partial.fill(&source, backup)?;
        partial.bring_forward()?;
        Ok(Restore { partial, copied, database, alone, _serve: serve })
    }

    /// Returns the path of the copy, so that it can be examined.
    pub fn path(&self) -> &Path {
        self.partial.path()
    }

    /// Puts the copy in place and deletes the old store.
    pub fn finish(self) -> Result<Copied, BackupError> {
        self.finish_step_by_step(|_| {})
    }

    /// Calls `done` after each change of the folder, with what was done.
    fn finish_step_by_step(self, mut done: impl FnMut(&str)) -> Result<Copied, BackupError> {
        let database = &self.database;
        let replaced = lock_folder::beside(database, REPLACED);
        if empty_log(database)? {
            done("the old store is whole without its log");
            remove_companions(database)?;
        } else {
            step_aside(database, &replaced, &mut done)?;
        }
        done("nothing is left beside the name of the store");
        // The log must be durably gone before another database has the name: SQLite would read it into that one.
        backup::sync_folder_of(database)?;
        self.partial.rename_to(database)?;
        done("the copy has the name of the store");
        // A failed write that raised the flag was to the old store.
        self.alone.lower().map_err(BackupError::io(database))?;
        // The log is removed first, and durably: a log alone would be taken for that of the new store (`leftovers.rs`).
        remove_companions(&replaced)?;
        done("the log that stepped aside is removed");
        backup::sync_folder_of(database)?;
        backup::remove_if_there(&replaced)?;
        done("what stepped aside is removed");
        backup::sync_folder_of(database)?;
        Ok(self.copied)
    }
}

/// Refuses to replace a log beside a name that no file has, unless the caller asked for that: the log may be all that
/// is left of a store.
fn refuse_logs(database: &Path, replaced: &Path, existing: Existing) -> Result<(), BackupError> {
    let mut logs =
        [database, replaced].into_iter().flat_map(|name| LOGS.map(|log| lock_folder::beside(name, log)));
    match logs.find(|log| !is_missing_or_empty(log)) {
        Some(log) if existing == Existing::Keep => {
            Err(BackupError::OrphanedLog { store: database.to_owned(), log })
        }
        _ => Ok(()),
    }
}

fn remove_companions(database: &Path) -> Result<(), BackupError> {
    COMPANIONS
        .iter()
        .try_for_each(|companion| backup::remove_if_there(&lock_folder::beside(database, companion)))
}

/// Copies the log of the old store into it and syncs it. Returns false if a log stays: SQLite finds the file damaged,
/// or there is no file. Any other error (a full disk, no descriptor left) is not the store's fault, and the store stays
/// where it is.
fn empty_log(database: &Path) -> Result<bool, BackupError> {
    if !is_missing_or_empty(database) {
        match checkpoint(database, READERS_WAIT) {
            Ok(false) => {}
            Ok(true) => {
                return Err(BackupError::InUse(format!(
                    "a process is reading {} (a backup, or a doctor): wait for it to end",
                    database.display()
                )));
            }
            // A damaged store is what restores are made for.
            Err(error) if SqliteFault::is_damage(&error) => {}
            Err(source) => return Err(BackupError::OldStore { path: database.to_owned(), source }),
        }
    }
    Ok(LOGS.iter().all(|log| is_missing_or_empty(&lock_folder::beside(database, log))))
}

/// Returns whether a reader is in the way. Closing this connection, the last one, removes the emptied log.
fn checkpoint(database: &Path, wait: Duration) -> rusqlite::Result<bool> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(database, flags)?;
    // Closing must not copy and remove a log that SQLite cannot read to its end, or not with this file.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.busy_timeout(wait)?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    // The first read rolls back a journal that a crash left.
    let read = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
    let busy = read.and_then(|()| conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)));
    match busy {
        Err(error) if SqliteFault::is_locked(&error) => return Ok(true),
        Ok(false) => {}
        busy => return busy,
    }
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(false)
}

/// Moves the old store and its log aside, the store first: without the store nobody opens the log. Each step is durable
/// before the next: a power failure must not leave the store under its name without its log.
fn step_aside(database: &Path, replaced: &Path, done: &mut impl FnMut(&str)) -> Result<(), BackupError> {
    if !is_missing_or_empty(database) {
        // A log that an earlier restore left there would be taken for the log of the store that gets the name now.
        remove_companions(replaced)?;
        backup::sync_folder_of(database)?;
        fs::rename(database, replaced).map_err(BackupError::io(database))?;
        done("the old store has stepped aside");
    } else if replaced.symlink_metadata().is_err() {
        // An empty file stands for the store that the log has lost, so that the log is not alone.
        private::options().create_new(true).open(replaced).map_err(BackupError::io(replaced))?;
        done("an empty file stands for the old store");
    }
    backup::sync_folder_of(database)?;
    for companion in COMPANIONS {
        let (from, to) = (lock_folder::beside(database, companion), lock_folder::beside(replaced, companion));
        if from.exists() && !to.exists() {
            fs::rename(&from, &to).map_err(BackupError::io(&from))?;
            done("a file of the old store has stepped aside");
        }
        backup::remove_if_there(&from)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use millrace_conformance::build::{append, batch, stream};
    use millrace_model::Offset;
    use millrace_store::{ReadLimit, Store};

    use super::*;
    use crate::SqliteOptions;
    use crate::SqliteStore;

    /// How many events are in the old store, and in the backup.
    const OLD: usize = 90;
    const NEW: usize = 3;

    fn publish(path: &Path, count: usize) -> SqliteStore {
        let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
        for n in 0..count {
            store.commit(&[batch(n as u64, vec![append(&stream("t", 0), "x")])]).unwrap();
        }
        store
    }

    fn events(path: &Path) -> Result<usize, StoreError> {
        let store = SqliteStore::open(path, SqliteOptions::default())?;
        let whole = ReadLimit { events_max: 10_000, bytes_max: usize::MAX };
        Ok(store.read(&stream("t", 0), Offset(1), whole)?.events.len())
    }

    /// Copies the files of a folder as they are now, which is what a SIGKILL leaves.
    fn snapshot(folder: &Path) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
            }
        }
        copy
    }

    /// Makes a store whose process was killed, with all events or the newest ones in its log, and a backup of another
    /// store.
    fn killed(before: usize) -> tempfile::TempDir {
        let made = tempfile::tempdir().unwrap();
        if before > 0 {
            drop(publish(&made.path().join("store.db"), before));
        }
        let open = publish(&made.path().join("store.db"), OLD - before);
        drop(publish(&made.path().join("other.db"), NEW));
        backup::backup(&made.path().join("other.db"), &made.path().join("backup"), Existing::Keep).unwrap();
        let killed = snapshot(made.path());
        drop(open);
        let log = killed.path().join("store.db-wal").metadata().unwrap().len();
        assert!(log > 0, "the old events are in the log");
        killed
    }

    /// Returns the folder as it was before the first and after each step of a restore.
    fn cuts(folder: &Path) -> Vec<(String, tempfile::TempDir)> {
        let database = folder.join("store.db");
        let restore = Restore::prepare(&folder.join("backup"), &database, Existing::Replace).unwrap();
        let mut cuts = vec![("copied".to_owned(), snapshot(folder))];
        restore.finish_step_by_step(|step| cuts.push((step.to_owned(), snapshot(folder)))).unwrap();
        cuts
    }

    fn restore_again(folder: &Path) {
        let database = folder.join("store.db");
        Restore::prepare(&folder.join("backup"), &database, Existing::Replace).unwrap().finish().unwrap();
        assert_eq!(events(&database).unwrap(), NEW);
        for name in ["store.db-replaced", "store.db-replaced-wal", "store.db-restoring"] {
            assert!(!folder.join(name).exists(), "{name}");
        }
    }

    #[test]
    fn cut_anywhere_the_old_or_the_new_store_is_whole_under_its_name() {
        let folder = killed(0);
        let cuts = cuts(folder.path());
        assert_eq!(cuts.len(), 6);
        let named = cuts.iter().position(|(step, _)| step.contains("has the name")).unwrap();
        for (at, (step, cut)) in cuts.iter().enumerate() {
            let expected = if at < named { OLD } else { NEW };
            // The store is whole with its log, and also without it once the first step is done.
            let served = snapshot(cut.path());
            assert_eq!(events(&served.path().join("store.db")).unwrap(), expected, "served after: {step}");
            if at > 0 {
                let alone = tempfile::tempdir().unwrap();
                fs::copy(cut.path().join("store.db"), alone.path().join("store.db")).unwrap();
                assert_eq!(events(&alone.path().join("store.db")).unwrap(), expected, "alone after: {step}");
            }
            restore_again(served.path());
            restore_again(cut.path());
        }
    }

    #[test]
    fn a_store_that_cannot_be_opened_keeps_its_log_until_the_new_one_is_in_place() {
        // With events committed before, the first page of the database is not in the log.
        let folder = killed(80);
        let database = folder.path().join("store.db");
        let (damaged, log) = (vec![7; 8192], fs::read(folder.path().join("store.db-wal")).unwrap());
        fs::write(&database, &damaged).unwrap();
        let cuts = cuts(folder.path());
        let named = cuts.iter().position(|(step, _)| step.contains("has the name")).unwrap();
        for (at, (step, cut)) in cuts.iter().enumerate() {
            let there = |names: &[&str], bytes: &[u8]| {
                names.iter().any(|name| fs::read(cut.path().join(name)).is_ok_and(|found| found == bytes))
            };
            let served = events(&cut.path().join("store.db"));
            if at < named {
                served.unwrap_err();
                assert!(there(&["store.db", "store.db-replaced"], &damaged), "{step}");
                assert!(there(&["store.db-wal", "store.db-replaced-wal"], &log), "{step}");
            } else {
                assert_eq!(served.unwrap(), NEW, "{step}");
            }
            restore_again(cut.path());
        }
    }

    /// Older versions moved the store aside and then its log: an interruption in between left them under different
    /// names.
    #[test]
    fn no_store_is_made_where_an_older_restore_was_cut() {
        let folder = killed(0);
        let at = |name: &str| folder.path().join(name);
        fs::rename(at("store.db"), at("store.db-replaced")).unwrap();
        let log = fs::read(at("store.db-wal")).unwrap();
        for _ in 0..2 {
            let refused = events(&at("store.db")).unwrap_err().to_string();
            assert!(
                refused.contains("store.db-replaced") && refused.contains("restore --force"),
                "{refused}"
            );
            assert!(matches!(
                Restore::prepare(&at("backup"), &at("store.db"), Existing::Keep),
                Err(BackupError::Exists(_))
            ));
            assert_eq!(fs::read(at("store.db-wal")).unwrap(), log);
            // The same holds with an empty file in place of the store.
            File::create(at("store.db")).unwrap();
        }
        // The replaced store is not accepted as a backup either: its log has another name.
        let from = Restore::prepare(&at("store.db-replaced"), &at("store.db"), Existing::Replace);
        assert!(matches!(from, Err(BackupError::File(FileError::CutRestore { .. }))));
        let again = snapshot(folder.path());
        restore_again(again.path());
        // Following the message brings the old store back, with everything in its log.
        fs::rename(at("store.db-replaced"), at("store.db")).unwrap();
        assert_eq!(events(&at("store.db")).unwrap(), OLD);
    }

    #[test]
    fn no_store_is_made_beside_a_copy_or_a_log() {
        let folder = killed(0);
        let at = |name: &str| folder.path().join(name);
        fs::remove_file(at("store.db")).unwrap();
        let refused = events(&at("store.db")).unwrap_err().to_string();
        assert!(refused.contains("its log") && at("store.db-wal").exists(), "{refused}");
        fs::remove_file(at("store.db-wal")).unwrap();
        fs::copy(at("backup"), at("store.db-restoring")).unwrap();
        let refused = events(&at("store.db")).unwrap_err().to_string();
        assert!(refused.contains("store.db-restoring") && !at("store.db").exists(), "{refused}");
        restore_again(folder.path());
    }

    #[test]
    fn a_reader_of_the_old_store_is_not_cut_off() {
        let folder = killed(0);
        let database = folder.path().join("store.db");
        let reader = crate::opening::read_only::open(&database).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
        assert!(checkpoint(&database, Duration::ZERO).unwrap(), "the reader is in the way");
        reader.execute_batch("COMMIT").unwrap();
        drop(reader);
        assert!(!checkpoint(&database, Duration::ZERO).unwrap());
        assert!(empty_log(&database).unwrap());
    }
}
