//! The handle on a store, and the port's methods, each forwarded to its module.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use millrace_model::{Batch, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, CommitVia, CopyPosition, DiskUse, FailureCause, FoldError, FoldRecord, Foldable,
    KeyRange, Maintained, NewsWake, OtherHandles, Page, Placement, ReadLimit, RecordedChange, Retention, Row,
    Store, StoreError, StreamBounds,
};

use crate::files::real_path;
use crate::locks::news_listener::NewsListener;
use crate::locks::serve_lock::ServeLock;
use crate::opening::open::{self, Opener};
use crate::options::SqliteOptions;
use crate::rows::tables;
use crate::store_core::StoreCore;
use crate::upkeep::checkpoint::CHECKPOINT_OVERDUE_TIMES;
use crate::upkeep::disk_use;
use crate::writing::progress::{self, WriteStep};
use crate::writing::quarantine::Quarantined;
use crate::writing::settler::Settler;
use crate::writing::unsettled::Wanted;

/// A handle on a store. Several handles, in one or many processes, may have the same file open and write to it.
pub struct SqliteStore {
    pub(crate) core: Arc<StoreCore>,
    settler: Settler,
    news: NewsListener,
}

impl SqliteStore {
    /// Opens the store at `path`, and creates it if there is none.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        open::open(&real_path::of_store(path)?, options, Opener::Session).map(SqliteStore::start)
    }

    /// Opens exactly the store that `lock` is for, to serve it, and creates it if there is none. A server locks before
    /// it opens, instead of calling [`Store::claim_serving`] afterwards: a store that another process serves is refused
    /// before anything in it is read or written.
    pub fn open_served(lock: ServeLock, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
        let path = lock.database().to_owned();
        open::open(&path, options, Opener::Server(lock)).map(SqliteStore::start)
    }

    fn start(core: StoreCore) -> SqliteStore {
        let core = Arc::new(core);
        SqliteStore { settler: Settler::new(core.clone()), news: NewsListener::default(), core }
    }

    /// Returns the real path of the file, by whatever name it was opened.
    pub fn path(&self) -> &Path {
        self.core.path()
    }

    /// Returns why nothing is written until all processes have reopened the store, if a write has failed here or in
    /// another process.
    pub fn poisoned(&self) -> Option<String> {
        self.core.locks.poisoned().map(str::to_owned)
    }

    /// Returns the events that were found damaged and recorded, oldest first.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, StoreError> {
        self.core.quarantined()
    }
}

impl Store for SqliteStore {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.core.commit_batches(batches)
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.core.settle_for(Wanted::Stream(stream))?;
        self.core.reading_fresh(|conn| self.core.read_page(conn, stream, from.0, limit))
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.core.settle_for(Wanted::Stream(stream))?;
        self.core.reading_fresh(|conn| self.core.seek_ts(conn, stream, ts.0).map(Offset))
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.core.settle_for(Wanted::Stream(stream))?;
        self.core.reading_fresh(|conn| self.core.start_under(conn, stream, rule).map(Offset))
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        self.core.settle_for(Wanted::Rows(space))?;
        self.core.reading(|conn| tables::scan(conn, space, range, rows_max, tables::Damaged::Refused))
    }

    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        self.core.settle_for(Wanted::Rows(space))?;
        self.core.reading(|conn| tables::scan_keys(conn, space, range, rows_max))
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.core.settle_for(Wanted::Everything)?;
        self.core.reading_fresh(|_| Ok(self.core.index().live().map(|state| state.bounds()).collect()))
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.core.settle_for(Wanted::Everything)?;
        self.core.reading_fresh(|conn| self.core.changes(conn, after.0, commits_max))
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.core.maintain_slice(rows_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.core.claim_serve_lock()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.core.is_serve_lock_elsewhere()
    }

    fn waits_for(&self) -> Option<String> {
        let step = self.core.progress.step();
        let held = if step == WriteStep::WriteLock { self.core.locks.held() } else { None };
        progress::describe(step, held)
    }

    fn wake_on_news(&self, wake: &NewsWake) -> Result<bool, StoreError> {
        match self.news.add(&self.core.locks, wake) {
            Ok(()) => Ok(true),
            Err(error) => Err(StoreError::Busy(FailureCause::of(error))),
        }
    }

    fn other_handles(&self) -> OtherHandles {
        self.news.other_handles(&self.core.locks)
    }

    fn lost_names(&self) -> Option<String> {
        self.core.misplaced()
    }

    fn retire(&self) -> Result<String, StoreError> {
        self.core.retire_now()
    }

    fn disk_use(&self) -> Option<DiskUse> {
        let options = &self.core.options;
        let overdue = options.wal_bytes.saturating_mul(CHECKPOINT_OVERDUE_TIMES);
        let wal_stuck_from = self.core.wal_held.load(Relaxed).then_some(overdue);
        disk_use::of(self.path(), options.disk_free_bytes_min, wal_stuck_from)
    }
}

impl Foldable for SqliteStore {
    fn position(&self) -> Result<Option<CopyPosition>, StoreError> {
        self.core.copy_position()
    }

    fn set_position(&self, position: &CopyPosition) -> Result<(), StoreError> {
        self.core.set_copy_position(position)
    }

    fn commit_via(
        &self,
        batches: &[Batch],
        place: &mut dyn FnMut(&[RecordedChange]) -> Placement,
    ) -> Result<CommitVia, StoreError> {
        let committed = self.core.commit_copy(batches, place);
        self.settler.start_if_wanted();
        committed
    }

    fn damage(&self) -> Option<String> {
        self.core.damage.get().cloned()
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.core.settle()
    }

    fn apply(&self, records: &[FoldRecord]) -> Result<(), FoldError> {
        self.core.apply_records(records)
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.news.stop();
        self.settler.stop();
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("options", &self.core.options).finish_non_exhaustive()
    }
}
