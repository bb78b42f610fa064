//! What others commit to the store, found by the writer between its own commits.
//!
//! Only the writer can tell the two apart without bookkeeping: whatever is new after one of its commits was reported
//! is either of that commit, and no news to the engine, or somebody else's.

use std::collections::BTreeMap;
use std::time::Instant;

use millrace_bus::{DelayedElsewhere, Reach};
use millrace_model::{Offset, Stream};
use millrace_store::{CommitNumber, Pace, Store, StoreError, StreamBounds, newest_commit};

use crate::boot;

/// Commits looked through in one go; more are looked at right after.
const COMMITS_MAX: usize = 1024;

pub(crate) struct Watcher {
    after: CommitNumber,
    pace: Pace,
    pub(crate) look_at: Instant,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Streams that somebody, perhaps this process, has appended to or trimmed since the last look.
    pub(crate) reaches: Vec<Reach>,
    /// Somebody has delayed events since the last look.
    pub(crate) delayed: Option<DelayedElsewhere>,
}

impl News {
    pub(crate) fn is_empty(&self) -> bool {
        self.reaches.is_empty() && self.delayed.is_none()
    }
}

impl Watcher {
    /// Begins behind everything the store holds: what was there at the start, the engine has been told.
    pub(crate) fn new(store: &dyn Store, pace: Pace) -> Result<Watcher, StoreError> {
        Ok(Watcher { after: newest_commit(store)?, pace, look_at: Instant::now() })
    }

    /// What has been committed since the last look.
    pub(crate) fn look(&mut self, store: &dyn Store) -> Result<News, StoreError> {
        // Should the look fail, the next one comes soon.
        self.look_at = Instant::now() + self.pace.busy();
        let changes = store.watch(self.after, COMMITS_MAX)?;
        let found = changes.last != self.after;
        self.look_at = Instant::now() + self.pace.after(found, found || store.has_others());
        let more = changes.last.0 >= self.after.0 + COMMITS_MAX as u64;
        if more {
            self.look_at = Instant::now();
        }
        let delayed = (changes.delayed || !changes.complete).then(|| boot::delayed(store)).transpose()?;
        if !changes.complete {
            let reaches = store.streams()?.into_iter().map(reach).collect();
            self.after = changes.last;
            return Ok(News { reaches, delayed });
        }
        self.after = changes.last;
        let mut ends: BTreeMap<Stream, Offset> = BTreeMap::new();
        for run in changes.runs {
            let end = Offset(run.first.0 + run.count);
            let known = ends.entry(run.stream).or_default();
            *known = end.max(*known);
        }
        let appended = ends.into_iter().map(|(stream, next)| Reach { stream, start: Offset::FIRST, next });
        let reaches = appended.chain(changes.trimmed.into_iter().map(reach)).collect();
        Ok(News { reaches, delayed })
    }
}

pub(crate) fn reach(bounds: StreamBounds) -> Reach {
    Reach { stream: bounds.stream, start: bounds.start, next: bounds.next }
}
