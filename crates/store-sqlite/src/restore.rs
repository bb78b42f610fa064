//! Restore: a backup becomes the store, in two steps, so that exactly what will be put in place can be examined first.
//!
//! Nobody has the store open meanwhile, and nobody can open it. At no moment does a database stand beside a WAL that is not
//! its own: the old ones step aside together before the new one gets its name.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_store::StoreError;

use crate::backup::{self, BackupError, COMPANIONS, Copied, Existing, Partial};
use crate::folder;
use crate::locks::{self, Alone};
use crate::serve_lock::ServeLock;

/// Where the replaced store is until the new one is in place; after a crash in between, all of it is there.
const ASIDE: &str = "-replaced";

/// A copy that waits to become the store. Dropped instead, it leaves everything as it was.
#[derive(Debug)]
pub struct Restore {
    partial: Partial,
    copied: Copied,
    database: PathBuf,
    alone: Alone,
    _serve: ServeLock,
}

impl Restore {
    /// Copies `backup` beside `database` and keeps everybody else from opening that.
    pub fn prepare(backup: &Path, database: &Path, existing: Existing) -> Result<Restore, BackupError> {
        let source = backup::open_source(backup)?;
        let partial = locks::beside(database, "-restoring");
        if backup::is_same(backup, database) || backup::is_same(backup, &partial) {
            return Err(BackupError::Itself(backup.to_owned()));
        }
        backup::refuse_existing(database, existing)?;
        let parent = folder::parent_of(database);
        fs::create_dir_all(parent).map_err(BackupError::io(parent))?;
        let serve = ServeLock::acquire(database).map_err(|error| match error {
            // What else a server could do about it is no advice here.
            StoreError::InUse(who) => {
                let who = who.rsplit_once("; ").map_or(who.as_str(), |(who, _)| who);
                BackupError::InUse(format!("{who}: stop it first"))
            }
            error => BackupError::InUse(error.to_string()),
        })?;
        let alone = Alone::take(database).map_err(BackupError::io(database))?.ok_or_else(|| {
            BackupError::InUse(format!("a process has {} open: stop it first", database.display()))
        })?;
        // Again, now that nobody can make one any more.
        backup::refuse_existing(database, existing)?;
        let partial = Partial::claim(&partial)?;
        let copied = partial.fill(&source, backup)?;
        partial.bring_forward()?;
        Ok(Restore { partial, copied, database: database.to_owned(), alone, _serve: serve })
    }

    /// The copy, to be examined.
    pub fn path(&self) -> &Path {
        self.partial.path()
    }

    /// Puts the copy in place; what was there is gone.
    pub fn finish(self) -> Result<Copied, BackupError> {
        let database = &self.database;
        let aside = locks::beside(database, ASIDE);
        move_if_there(database, &aside)?;
        for companion in COMPANIONS {
            move_if_there(&locks::beside(database, companion), &locks::beside(&aside, companion))?;
        }
        backup::sync_folder_of(database)?;
        self.partial.put(database)?;
        // A write that failed was a write to the store that is gone now.
        self.alone.lower().map_err(BackupError::io(database))?;
        backup::remove_if_there(&aside)?;
        for companion in COMPANIONS {
            backup::remove_if_there(&locks::beside(&aside, companion))?;
        }
        Ok(self.copied)
    }
}

fn move_if_there(from: &Path, to: &Path) -> Result<(), BackupError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => backup::remove_if_there(to),
        moved => moved.map_err(BackupError::io(from)),
    }
}
