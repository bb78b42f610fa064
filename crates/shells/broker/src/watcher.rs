//! Finds commits of other processes to the store; called by the writer between its own commits.
//!
//! Only the writer can tell its own commits from others without bookkeeping: its own are reported to the engine first,
//! so they are no news to it. Everything else that is new was committed by another process.

use std::collections::BTreeMap;
use std::time::Instant;

use millrace_bus::{DelayedElsewhere, Reach};
use millrace_model::{Offset, Stream};
use millrace_store::{CommitNumber, Pace, Store, StoreError, StreamBounds, newest_commit};

use crate::boot;

/// Commits read in one go; if there are more, the next look follows at once.
const COMMITS_MAX: usize = 1024;

pub(crate) struct Watcher {
    after: CommitNumber,
    pace: Pace,
    pub(crate) look_at: Instant,
}

/// The findings of a look.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// Streams that a process, perhaps this one, has appended to or trimmed since the last look.
    pub(crate) reaches: Vec<Reach>,
    /// Set if a process has delayed events since the last look.
    pub(crate) delayed: Option<DelayedElsewhere>,
}

impl News {
    pub(crate) fn is_empty(&self) -> bool {
        self.reaches.is_empty() && self.delayed.is_none()
    }
}

impl Watcher {
    /// Starts after the newest commit: the engine has been told of everything in the store at the start.
    pub(crate) fn new(store: &dyn Store, pace: Pace) -> Result<Watcher, StoreError> {
        Ok(Watcher { after: newest_commit(store)?, pace, look_at: Instant::now() })
    }

    /// Returns what has been committed since the last look.
    pub(crate) fn look(&mut self, store: &dyn Store) -> Result<News, StoreError> {
        // If this look fails, the next one comes soon.
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
