//! The handle on a store, and the port's methods, each forwarded to its module.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use millrace_model::{Batch, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, DiskUse, KeyRange, Maintained, Page, ReadLimit, Retention, Row, Store, StoreError,
    StreamBounds, StreamRun,
};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rusqlite::Connection;

use crate::error::Attempt;
use crate::files::names::FileNames;
use crate::files::real_path;
use crate::locks::lock_folder::Locks;
use crate::locks::serve_lock::ServeLock;
use crate::opening::load;
use crate::opening::open::{self, Opener};
use crate::options::SqliteOptions;
use crate::reading::index::{Index, StreamState};
use crate::reading::pool::Pool;
use crate::rows::tables;
use crate::upkeep::checkpoint::CHECKPOINT_OVERDUE_TIMES;
use crate::upkeep::checkpointer::Checkpointer;
use crate::upkeep::disk_use;
use crate::writing::progress::{self, Progress, WriteStep};
use crate::writing::quarantine::{Quarantine, Quarantined};
use crate::writing::transaction::Writer;

/// A handle on a store. Several handles, in one or many processes, may have the same file open and write to it.
///
/// Fields are dropped in order: the writer's connection must be the last one closed, because closing the last
/// connection checkpoints (the checkpointer has ended before); the locks come after everything.
pub struct SqliteStore {
    pub(crate) readers: Pool,
    pub(crate) writer: Mutex<Writer>,
    /// Held for lookups and publication only; the writer never holds it during I/O.
    index: RwLock<Index>,
    pub(crate) quarantine: Quarantine,
    pub(crate) options: SqliteOptions,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) progress: Progress,
    path: PathBuf,
    pub(crate) names: FileNames,
    /// The last checkpoint with the write lock left frames in the log that a reader still needs.
    pub(crate) wal_held: AtomicBool,
    /// The first damage that a copy of a journal has met (`writing/copy.rs`).
    pub(crate) damage: OnceLock<String>,
    /// The store is being retired, and its content is not saved yet.
    pub(crate) suspended: AtomicBool,
    pub(crate) locks: Arc<Locks>,
    /// Held by the handle that serves the store. Dropped last: the next server finds everything closed.
    pub(crate) serve_lock: Mutex<Option<ServeLock>>,
    /// Runs once, when a commit has released the write lock and still has to remember ids.
    #[cfg(test)]
    pub(crate) after_turn: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl SqliteStore {
    /// Opens the store at `path`, and creates it if there is none.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        open::open(&real_path::of_store(path)?, options, Opener::Session)
    }

    /// Opens exactly the store that `lock` is for, to serve it, and creates it if there is none. A server locks before
    /// it opens, instead of calling [`Store::claim_serving`] afterwards: a store that another process serves is refused
    /// before anything in it is read or written.
    pub fn open_served(lock: ServeLock, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        let path = lock.database().to_owned();
        open::open(&path, options, Opener::Server(lock))
    }

    pub(crate) fn assemble(
        path: &Path,
        options: SqliteOptions,
        locks: Locks,
        serve_lock: Option<ServeLock>,
        writer: Writer,
        index: Index,
    ) -> SqliteStore {
        let locks = Arc::new(locks);
        SqliteStore {
            checkpointer: Checkpointer::new(path, locks.clone()),
            readers: Pool::new(path, options.readers_max),
            writer: Mutex::new(writer),
            index: RwLock::new(index),
            quarantine: Quarantine::default(),
            options,
            progress: Progress::default(),
            path: path.to_owned(),
            names: FileNames::note(path, &locks),
            wal_held: AtomicBool::new(false),
            damage: OnceLock::new(),
            suspended: AtomicBool::new(false),
            locks,
            serve_lock: Mutex::new(serve_lock),
            #[cfg(test)]
            after_turn: Mutex::default(),
        }
    }

    /// Returns the real path of the file, by whatever name it was opened.
    pub fn path(&self) -> &Path {
        self.readers.path()
    }

    /// Returns why nothing is written until all processes have reopened the store, if a write has failed here or in
    /// another process.
    pub fn poisoned(&self) -> Option<String> {
        self.locks.poisoned().map(str::to_owned)
    }

    /// Returns the events that were found damaged and recorded, oldest first.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, StoreError> {
        self.reading(|conn| self.quarantine.recorded(conn))
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    fn reading<T>(&self, work: impl FnOnce(&Connection) -> Attempt<T>) -> Result<T, StoreError> {
        self.readers.lend(work).map_err(|fault| {
            self.note_damage(&fault);
            fault.unreadable()
        })
    }

    /// Reads after the index has caught up with all commits of any process.
    fn reading_fresh<T>(&self, work: impl FnOnce(&Connection) -> Attempt<T>) -> Result<T, StoreError> {
        self.reading(|conn| {
            self.refresh(conn)?;
            work(conn)
        })
    }

    fn refresh(&self, conn: &Connection) -> Attempt<()> {
        if load::last_commit(conn)? > self.index().last {
            let transaction = conn.unchecked_transaction()?;
            self.catch_up(&transaction)?;
        }
        Ok(())
    }

    /// Adds the commits of other processes to the index. Must run inside a transaction, so that commits and the rows
    /// they touched are of one moment.
    pub(crate) fn catch_up(&self, conn: &Connection) -> Attempt<()> {
        let after = self.index().last;
        match load::news(conn, after)? {
            Some(news) => {
                let mut index = self.index_mut();
                for (c, record, rows) in news.commits {
                    index.apply(c, &record, rows);
                }
            }
            None => {
                let loaded = load::load(conn)?;
                let mut index = self.index_mut();
                if loaded.last > index.last {
                    *index = loaded;
                }
            }
        }
        Ok(())
    }

    fn changes(&self, conn: &Connection, after: u64, commits_max: usize) -> Attempt<Changes> {
        let last = CommitNumber(self.index().last);
        if after == last.0 {
            return Ok(Changes { last, complete: true, ..Changes::default() });
        }
        let transaction = conn.unchecked_transaction()?;
        let remembered =
            load::first_commit(&transaction)?.is_some_and(|first| first <= after.saturating_add(1));
        if after > last.0 || !remembered {
            return Ok(Changes { last, ..Changes::default() });
        }
        let mut changes = Changes { last: CommitNumber(after), complete: true, ..Changes::default() };
        let mut touched = BTreeSet::new();
        let index = self.index();
        load::records(&transaction, after, commits_max, |c, _, record| {
            if c > index.last {
                return Ok(ControlFlow::Break(()));
            }
            changes.last = CommitNumber(c);
            touched.extend(record.touched);
            changes.delayed |= record.delayed;
            changes.runs.extend(record.runs.into_iter().filter_map(|(id, run)| {
                let state = index.by_id(id).filter(|state| !state.row.dropped)?;
                Some(StreamRun {
                    stream: state.row.stream.clone(),
                    first: Offset(run.offset),
                    count: run.count,
                })
            }));
            Ok(ControlFlow::Continue(()))
        })?;
        let live = touched.into_iter().filter_map(|id| index.by_id(id)).filter(|state| !state.row.dropped);
        changes.trimmed = live.filter(|state| state.row.start > 1).map(StreamState::bounds).collect();
        Ok(changes)
    }
}

impl Store for SqliteStore {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.commit_batches(batches)
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.reading_fresh(|conn| self.read_page(conn, stream, from.0, limit))
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.reading_fresh(|conn| self.seek_ts(conn, stream, ts.0).map(Offset))
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.reading_fresh(|conn| self.start_under(conn, stream, rule).map(Offset))
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        self.reading(|conn| tables::scan(conn, space, range, rows_max, tables::Damaged::Refused))
    }

    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        self.reading(|conn| tables::scan_keys(conn, space, range, rows_max))
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.reading_fresh(|_| Ok(self.index().live().map(|state| state.bounds()).collect()))
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.reading_fresh(|conn| self.changes(conn, after.0, commits_max))
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.maintain_slice(rows_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.claim_serve_lock()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.is_serve_lock_elsewhere()
    }

    fn waits_for(&self) -> Option<String> {
        let step = self.progress.step();
        let held = if step == WriteStep::WriteLock { self.locks.held() } else { None };
        progress::describe(step, held)
    }

    fn has_others(&self) -> bool {
        self.locks.others()
    }

    fn lost_names(&self) -> Option<String> {
        self.misplaced()
    }

    fn retire(&self) -> Result<String, StoreError> {
        self.retire_now()
    }

    fn disk_use(&self) -> Option<DiskUse> {
        let overdue = self.options.wal_bytes.saturating_mul(CHECKPOINT_OVERDUE_TIMES);
        let wal_stuck_from = self.wal_held.load(Relaxed).then_some(overdue);
        disk_use::of(&self.path, self.options.disk_free_bytes_min, wal_stuck_from)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.options).finish_non_exhaustive()
    }
}
