//! The state that a handle shares with its threads, and how the index in memory follows the file.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use millrace_model::Offset;
use millrace_store::{Changes, CommitNumber, StoreError, StreamRun};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rusqlite::Connection;

use crate::dedupe::hash::HashKey;
use crate::dedupe::recent_ids::Dedupe;
use crate::error::Attempt;
use crate::files::names::FileNames;
use crate::locks::lock_folder::Locks;
use crate::locks::serve_lock::ServeLock;
use crate::opening::load;
use crate::options::SqliteOptions;
use crate::reading::index::{Index, StreamState};
use crate::reading::pool::Pool;
use crate::upkeep::checkpointer::Checkpointer;
use crate::writing::front::Front;
use crate::writing::progress::Progress;
use crate::writing::quarantine::{Quarantine, Quarantined};
use crate::writing::settler::SettleSignal;
use crate::writing::transaction::Writer;
use crate::writing::unsettled::UnsettledCommits;

/// Everything that belongs to an open store, shared by the handle ([`crate::SqliteStore`]) and its thread.
///
/// Locks are taken in this order: `front`, `writer`, then any one of `unsettled`, `dedupe` and `index`.
///
/// Fields are dropped in order: the writer's connection must be the last one closed, because closing the last
/// connection checkpoints (the checkpointer has ended before); the locks come after everything.
pub(crate) struct StoreCore {
    pub(crate) readers: Pool,
    /// Held by the commit under way, so that there is one at a time.
    pub(crate) front: Mutex<Front>,
    pub(crate) writer: Mutex<Writer>,
    /// Commits that are durable elsewhere and not in the tables yet. Held for lookups and publication only.
    pub(crate) unsettled: Mutex<UnsettledCommits>,
    /// Wakes the thread that settles them.
    pub(crate) settle_signal: SettleSignal,
    /// Ids of events in the tables.
    dedupe: Mutex<Dedupe>,
    /// The key of the hashes of ids.
    pub(crate) hash_key: HashKey,
    /// Held for lookups and publication only; the writer never holds it during I/O.
    index: RwLock<Index>,
    pub(crate) quarantine: Quarantine,
    pub(crate) options: SqliteOptions,
    pub(crate) checkpointer: Checkpointer,
    pub(crate) progress: Progress,
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
    /// Runs once, between a look at the unsettled commits and the look at the tables.
    #[cfg(test)]
    pub(crate) between_looks: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl StoreCore {
    pub(crate) fn assemble(
        path: &Path,
        options: SqliteOptions,
        locks: Locks,
        serve_lock: Option<ServeLock>,
        loaded: LoadedStore,
    ) -> StoreCore {
        let LoadedStore { writer, front, dedupe, index } = loaded;
        let locks = Arc::new(locks);
        StoreCore {
            checkpointer: Checkpointer::new(path, locks.clone()),
            readers: Pool::new(path, options.readers_max),
            front: Mutex::new(front),
            writer: Mutex::new(writer),
            unsettled: Mutex::default(),
            settle_signal: SettleSignal::default(),
            hash_key: dedupe.key(),
            dedupe: Mutex::new(dedupe),
            index: RwLock::new(index),
            quarantine: Quarantine::default(),
            options,
            progress: Progress::default(),
            names: FileNames::note(path, &locks),
            wal_held: AtomicBool::new(false),
            damage: OnceLock::new(),
            suspended: AtomicBool::new(false),
            locks,
            serve_lock: Mutex::new(serve_lock),
            #[cfg(test)]
            after_turn: Mutex::default(),
            #[cfg(test)]
            between_looks: Mutex::default(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.readers.path()
    }

    pub(crate) fn quarantined(&self) -> Result<Vec<Quarantined>, StoreError> {
        self.reading(|conn| self.quarantine.recorded(conn))
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read()
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write()
    }

    pub(crate) fn dedupe(&self) -> MutexGuard<'_, Dedupe> {
        self.dedupe.lock()
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock()
    }

    /// Reads from the tables. The caller has settled what it wants to see (`settle_for`).
    pub(crate) fn reading<T>(&self, work: impl FnOnce(&Connection) -> Attempt<T>) -> Result<T, StoreError> {
        self.readers.lend(work).map_err(|fault| {
            self.note_damage(&fault);
            fault.unreadable()
        })
    }

    /// Reads after the index has caught up with all commits of any process.
    pub(crate) fn reading_fresh<T>(
        &self,
        work: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> Result<T, StoreError> {
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

    pub(crate) fn changes(&self, conn: &Connection, after: u64, commits_max: usize) -> Attempt<Changes> {
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

/// The parts of a store that opening has read from its file.
pub(crate) struct LoadedStore {
    pub(crate) writer: Writer,
    pub(crate) front: Front,
    pub(crate) dedupe: Dedupe,
    pub(crate) index: Index,
}
