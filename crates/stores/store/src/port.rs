//! The port itself: the trait that adapters implement, and the types of its methods.

use std::sync::Arc;

use millrace_model::{Batch, KeyRange, Offset, Outcome, Page, ReadLimit, Row, Space, Stream, Timestamp};

use crate::error::StoreError;

/// The number of a commit, from 1. [`Store::watch`] resumes from such a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(pub u64);

/// Wakes a caller of [`Store::watch`]. Called by a thread of the store, so it must not wait for the store.
pub type NewsWake = Arc<dyn Fn() + Send + Sync>;

/// All methods may be called from any thread; `commit` and `maintain` exclude one another, reads wait for neither.
pub trait Store: Send + Sync + 'static {
    /// Commits all batches in one transaction and one sync. The outcomes are in the order of the batches. A batch whose
    /// check fails is refused alone and leaves nothing; a batch sees the writes of the batches before it.
    ///
    /// # Errors
    ///
    /// If [`StoreError::wrote_nothing`] holds, none of the batches was written; if [`StoreError::may_be_retried`] holds
    /// too, the caller may commit them again. Every other error poisons the store: the caller must treat the outcome of
    /// all batches as unknown.
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError>;

    /// Returns events of a stream in offset order, from `from` on or, if that was trimmed, from the stream's start.
    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError>;

    /// Returns the first offset whose event is not older than `ts`, or the offset of the next event if there is none.
    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError>;

    /// Returns the start that a stream should have under a retention rule. Trims nothing: that is an operation of a
    /// batch.
    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError>;

    /// Returns rows of a small table in key order.
    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError>;

    /// Returns only the keys, in the same order: to count rows that hold whole events, their values need not be in
    /// memory. A key says nothing about whether its row can be decoded.
    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        Ok(self.scan(space, range, rows_max)?.into_iter().map(|row| row.key).collect())
    }

    /// Returns every stream that has ever had an event and whose topic was not dropped.
    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError>;

    /// Returns what was appended, delayed and trimmed after commit `after`, by this or another process. Costs one
    /// lookup when nothing was. Commits that only write other rows (acks, releases, state without events) have no
    /// number and are not reported; a caller that waits for such rows knows when they are due, or polls them.
    /// [`Changes::complete`] is false when the store no longer remembers that far back: the caller then starts over
    /// from [`Store::streams`].
    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError>;

    /// Does a slice of housekeeping: folds or removes at most about `rows_max` rows. Call again while
    /// [`Maintained::more`] is set.
    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError>;

    /// Makes this handle the only server of the store, until the handle is closed or its process ends, however it ends.
    /// A handle that serves the store already keeps the right. Serving excludes nothing else: every handle may still
    /// read, commit and do housekeeping.
    ///
    /// A server relies on being alone: the positions of groups, their members and the delays of retries are in its
    /// memory. An adapter for several processes therefore needs a lock that the end of a process releases. A store that
    /// only one handle can reach, such as [`crate::MemoryStore`], has nothing to lock and always succeeds.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] while another handle, of this or another process, serves the store; the text says which.
    fn claim_serving(&self) -> Result<(), StoreError>;

    /// Returns whether another handle, of this or another process, serves the store now and so does its housekeeping.
    /// False if that cannot be found out.
    fn is_served_elsewhere(&self) -> bool;

    /// Returns what the commit or the housekeeping under way waits for, to complete the sentence "it waits for ...".
    /// `None` when nothing is under way. This call itself never waits for the writer or for the disk.
    fn waits_for(&self) -> Option<String> {
        None
    }

    /// Asks the store to call `wake` soon after another handle, of this or another process, has committed something that
    /// [`Store::watch`] reports, until `wake` is dropped by its owner (the store keeps a weak reference). Calls may be
    /// merged, may be late, and may come without news. Must be called before the caller reads from where it watches:
    /// every commit after this call is told. Returns false if this kind of store tells nothing: the caller polls.
    ///
    /// # Errors
    ///
    /// Returns why nothing will be told although the store could. The caller then polls.
    fn wake_on_news(&self, wake: &NewsWake) -> Result<bool, StoreError> {
        let _ = wake;
        Ok(false)
    }

    /// Returns how the caller of [`Store::watch`] learns of the commits of other handles. Cheaper than a poll. The answer
    /// may be wrong for a moment, so no caller may stop polling for good.
    fn other_handles(&self) -> OtherHandles {
        OtherHandles::Silent
    }

    /// Returns which of the store's files have lost their names since it was opened: moved, removed or replaced from
    /// outside. Processes that open the store by its name now do not see what this handle writes. `None` while all is
    /// well, and for a store without files. Asks the file system.
    fn lost_names(&self) -> Option<String> {
        None
    }

    /// Stops writing for good, like a poisoned store, after saving the data that would be lost with this process. For a
    /// store that has lost names ([`Store::lost_names`]). Returns what has happened to the files, and what to do. After
    /// an error no commit is written until a later call succeeds.
    fn retire(&self) -> Result<String, StoreError> {
        Err(StoreError::Unusable("this store has no files".into()))
    }

    /// Waits until the next commit may begin, where an engine outside is paid for every commit. A writer calls this
    /// before it takes the batches of a commit: batches that arrive meanwhile are then in the same one.
    fn wait_to_commit(&self) {}

    /// Ends every wait for an engine outside, now and later: commits under way fail with [`StoreError::Closed`]. For a
    /// process that must end although its engine is away. A store on the local disk has nothing to end.
    fn close(&self) {}

    /// Returns the disk space that the store uses and that is left. `None` for a store that is not on a disk, or when
    /// the file system does not tell. Asks the file system.
    fn disk_use(&self) -> Option<DiskUse> {
        None
    }
}

/// How a handle learns of what other handles commit, of this or another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherHandles {
    /// Every handle tells of its commits ([`Store::wake_on_news`]), and so does one that is opened later; or there is a
    /// call when one is opened that does not.
    Told,
    /// No handle is open that does not tell of its commits. Such a handle may be opened at any time, without a call.
    None,
    /// A handle may be open that does not tell of its commits, or that cannot be known.
    Silent,
}

/// Bytes of a store and of the file system it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The store's file, without its write-ahead log.
    pub store_bytes: u64,
    /// The write-ahead log.
    pub wal_bytes: u64,
    /// The log is larger than it should get, and cannot start over because a reader still holds an old snapshot of the
    /// store.
    pub wal_stuck: bool,
    /// Bytes that the file system has left for this process's user.
    pub free_bytes: u64,
    /// Below this many free bytes publishes are to be refused, so that acks and deletions still find room.
    pub free_bytes_min: u64,
}

impl DiskUse {
    /// Returns why nothing more should be added to the store, if so.
    pub fn low(&self) -> Option<String> {
        let DiskUse { free_bytes, free_bytes_min, .. } = self;
        (free_bytes < free_bytes_min).then(|| {
            format!("the disk of the store has {free_bytes} bytes free, at least {free_bytes_min} are wanted")
        })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Events older than this may go.
    pub older_than: Option<Timestamp>,
    /// The oldest events may go until the rest fits.
    pub bytes_max: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBounds {
    pub stream: Stream,
    /// The first retained offset, or `next` when nothing is retained.
    pub start: Offset,
    /// The offset that the next event will get.
    pub next: Offset,
    /// Bytes of payloads, keys and headers retained (an estimate after a crash).
    pub bytes: u64,
    pub last_ts: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub last: CommitNumber,
    pub runs: Vec<StreamRun>,
    /// Streams whose start may have moved, each with bounds that it has had since. Streams that only housekeeping
    /// touched may be included.
    pub trimmed: Vec<StreamBounds>,
    /// Events were delayed: a mover (see ARCHITECTURE.md) looks up when the first one is due.
    pub delayed: bool,
    pub complete: bool,
}

/// Consecutive offsets of one stream appended by one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRun {
    pub stream: Stream,
    pub first: Offset,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    pub rows: usize,
    pub more: bool,
}
