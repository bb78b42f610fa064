//! The port itself: what adapters owe.

use std::sync::Arc;

use bytes::Bytes;
use millrace_model::{Batch, Event, Offset, Outcome, Space, Stream, Timestamp};

use crate::error::StoreError;

/// Counts commits, first is 1. What [`Store::watch`] resumes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitNumber(pub u64);

/// All methods may be called from any thread; `commit` and `maintain` exclude one another, reads wait for neither.
pub trait Store: Send + Sync + 'static {
    /// All batches in one transaction and one sync. The answers are in the order of the batches. A batch whose check
    /// fails is refused alone and leaves nothing; a batch sees the writes of those before it. Every `Err` but
    /// [`StoreError::TooLarge`] poisons the store: the caller must treat the outcome of all batches as unknown.
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError>;

    /// Events of one stream in offset order, beginning at `from` or, if that was trimmed, at the stream's start.
    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError>;

    /// The first offset whose event is not older than `ts`; the offset the next event will get if there is none.
    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError>;

    /// The start a stream should have under a retention rule. Only looks; trimming is an operation of a batch.
    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError>;

    /// Rows of a small table in key order.
    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError>;

    /// Every stream that has ever had an event and whose topic was not dropped.
    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError>;

    /// What was appended after commit `after`, by this or another process. Cheap when nothing was: one lookup. Commits
    /// that only write rows (acks, releases, state without events) have no number and are not told; who waits for
    /// such rows knows when they are due, or looks again after a while.
    /// `complete` is false when the store no
    /// longer remembers that far back: the caller then starts over from [`Store::streams`].
    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError>;

    /// A slice of housekeeping: at most about `rows_max` rows folded or removed. Call again while it says there is more.
    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    pub events_max: usize,
    /// A page ends before the event that would pass this, but holds at least one event if there is one.
    pub bytes_max: usize,
}

/// A stretch of a stream. Every offset from the one asked for up to `through` is either in `events`, or in
/// `damaged`, or legally gone (trimmed or removed). Nothing is said about offsets past `through`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub events: Vec<Arc<Event>>,
    /// Offsets whose event failed its checksum or vanished: reported, set aside, never silently skipped.
    pub damaged: Vec<Offset>,
    pub through: Offset,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Events older than this may go.
    pub older_than: Option<Timestamp>,
    /// The oldest events may go until the rest fits.
    pub bytes_max: Option<u64>,
}

/// Keys from `from` (included) to `to` (excluded; `None` = to the end of the table).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    pub from: String,
    pub to: Option<String>,
}

impl KeyRange {
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// All keys that begin with `prefix`, which must end in an ASCII character.
    pub fn prefix(prefix: &str) -> KeyRange {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        KeyRange { from: prefix.to_owned(), to: String::from_utf8(end).ok().filter(|end| !end.is_empty()) }
    }

    pub fn contains(&self, key: &str) -> bool {
        key >= self.from.as_str() && self.to.as_deref().is_none_or(|to| key < to)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: String,
    pub value: Bytes,
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
