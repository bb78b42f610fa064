//! The port itself: what adapters owe.

use millrace_model::{Batch, KeyRange, Offset, Outcome, Page, ReadLimit, Row, Space, Stream, Timestamp};

use crate::error::StoreError;

/// Counts commits, first is 1. What [`Store::watch`] resumes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(pub u64);

/// All methods may be called from any thread; `commit` and `maintain` exclude one another, reads wait for neither.
pub trait Store: Send + Sync + 'static {
    /// All batches in one transaction and one sync. The answers are in the order of the batches. A batch whose check
    /// fails is refused alone and leaves nothing; a batch sees the writes of those before it. After an `Err` for which
    /// [`StoreError::wrote_nothing`] holds, none of the batches was written and the caller may commit them again. Every
    /// other `Err` poisons the store: the caller must treat the outcome of all batches as unknown.
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError>;

    /// Events of one stream in offset order, beginning at `from` or, if that was trimmed, at the stream's start.
    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError>;

    /// The first offset whose event is not older than `ts`; the offset the next event will get if there is none.
    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError>;

    /// The start a stream should have under a retention rule. Only looks; trimming is an operation of a batch.
    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError>;

    /// Rows of a small table in key order.
    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError>;

    /// The keys alone, in the same order: rows that hold whole events are not brought into memory to be counted. Says
    /// nothing about whether the rows can be read.
    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        Ok(self.scan(space, range, rows_max)?.into_iter().map(|row| row.key).collect())
    }

    /// Every stream that has ever had an event and whose topic was not dropped.
    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError>;

    /// What was appended, delayed and trimmed after commit `after`, by this or another process. Cheap when nothing was: one
    /// lookup. Commits that only write other rows (acks, releases, state without events) have no number and are not told; who
    /// waits for such rows knows when they are due, or looks again after a while.
    /// `complete` is false when the store no
    /// longer remembers that far back: the caller then starts over from [`Store::streams`].
    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError>;

    /// A slice of housekeeping: at most about `rows_max` rows folded or removed. Call again while it says there is more.
    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError>;

    /// What the commit or the housekeeping under way waits for, to complete the sentence "it waits for ...". Never
    /// waits for the writer or for the disk. `None` when nothing is under way.
    fn waits_for(&self) -> Option<String> {
        None
    }

    /// Whether somebody else may have the store open. Who polls [`Store::watch`] asks, to poll less often while nobody
    /// has: it may be wrong for a moment, so polling must not end. Cheaper than a look. True where nobody can tell.
    fn has_others(&self) -> bool {
        true
    }

    /// Says which of the store's files have lost their names since it was opened: moved, removed or replaced by somebody.
    /// Processes that open the store by its name now do not see what this one writes. Asks the file system. `None` while
    /// all is well, and for a store without files.
    fn lost_names(&self) -> Option<String> {
        None
    }

    /// Stops writing for good, like a poisoned store, after saving what would be gone with this process. Returns what has
    /// happened to the files, and what to do. For a store that has lost names ([`Store::lost_names`]). After an error no
    /// commit is written until a later call succeeds.
    fn retire(&self) -> Result<String, StoreError> {
        Err(StoreError::Unusable("this store has no files".to_owned()))
    }

    /// What the store takes on its disk and what is left there. Asks the file system. `None` for a store that is not
    /// on a disk, or when the file system does not tell.
    fn disk_use(&self) -> Option<DiskUse> {
        None
    }
}

/// Bytes of a store and of the file system it is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// The store's file, without its write-ahead log.
    pub store_bytes: u64,
    /// The write-ahead log.
    pub wal_bytes: u64,
    /// The log is larger than it should get, and cannot start over because somebody still reads an old state of the store.
    pub wal_stuck: bool,
    /// What the file system has left for this process's user.
    pub free_bytes: u64,
    /// Where publishes are to be refused, so that acks and deletions still find room.
    pub free_bytes_min: u64,
}

impl DiskUse {
    /// Why nothing more is to be added, if so.
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
    /// The first offset that is retained, or `next` when nothing is.
    pub start: Offset,
    /// The offset the next event will get.
    pub next: Offset,
    /// Bytes of payloads, keys and headers retained (an estimate after a crash).
    pub bytes: u64,
    pub last_ts: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub last: CommitNumber,
    pub runs: Vec<Run>,
    /// Streams whose start may have moved, each with bounds it has had since. A stream that only housekeeping touched
    /// may be among them.
    pub trimmed: Vec<StreamBounds>,
    /// Events were delayed: who moves them looks up when the first one is due.
    pub delayed: bool,
    pub complete: bool,
}

/// Consecutive offsets of one stream appended by one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub stream: Stream,
    pub first: Offset,
    pub count: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    pub rows: usize,
    pub more: bool,
}
