//! What others commit to the store, found by the writer between its own commits.
//!
//! Only the writer can tell the two apart without bookkeeping: whatever is new after one of its commits was reported
//! is either of that commit, and no news to the engine, or somebody else's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use millrace_bus::Reach;
use millrace_model::{Offset, Stream};
use millrace_store::{CommitNumber, Store, StoreError, StreamBounds, newest_commit};

/// Commits looked through in one go; more are looked at right after.
const COMMITS_MAX: usize = 1024;

pub(crate) struct Watcher {
    after: CommitNumber,
    interval: Duration,
    pub(crate) look_at: Instant,
}

impl Watcher {
    /// Begins behind everything the store holds: what was there at the start, the engine has been told.
    pub(crate) fn new(store: &dyn Store, interval: Duration) -> Result<Watcher, StoreError> {
        Ok(Watcher { after: newest_commit(store)?, interval, look_at: Instant::now() })
    }

    /// Streams that somebody, perhaps this process, has appended to since the last look.
    pub(crate) fn look(&mut self, store: &dyn Store) -> Result<Vec<Reach>, StoreError> {
        self.look_at = Instant::now() + self.interval;
        let changes = store.watch(self.after, COMMITS_MAX)?;
        let more = changes.last.0 >= self.after.0 + COMMITS_MAX as u64;
        if more {
            self.look_at = Instant::now();
        }
        if !changes.complete {
            let reaches = store.streams()?.into_iter().map(reach).collect();
            self.after = changes.last;
            return Ok(reaches);
        }
        self.after = changes.last;
        let mut ends: BTreeMap<Stream, Offset> = BTreeMap::new();
        for run in changes.runs {
            let end = Offset(run.first.0 + run.count);
            let known = ends.entry(run.stream).or_default();
            *known = end.max(*known);
        }
        Ok(ends.into_iter().map(|(stream, next)| Reach { stream, start: Offset::FIRST, next }).collect())
    }
}

pub(crate) fn reach(bounds: StreamBounds) -> Reach {
    Reach { stream: bounds.stream, start: bounds.start, next: bounds.next }
}
