//! Finds commits of other processes to the store; called by the writer between its own commits.
//!
//! Only the writer can tell its own commits from others without bookkeeping: its own are reported to the engine first,
//! so they are no news to it. Everything else that is new was committed by another process.

use std::time::Instant;

use millrace_bus::{DelayedElsewhere, Reach};
use millrace_shell::{Watcher, changed_streams};
use millrace_store::{Pace, Store, StoreError, StreamBounds};

use crate::boot;

pub(crate) struct NewsWatcher {
    watcher: Watcher,
    pub(crate) poll_at: Instant,
}

/// The findings of a poll, as the engine is told them.
#[derive(Debug)]
pub(crate) struct News {
    /// Streams that a process, perhaps this one, has appended to or trimmed since the last poll.
    pub(crate) reaches: Vec<Reach>,
    /// Set if a process has delayed events since the last poll.
    pub(crate) delayed: Option<DelayedElsewhere>,
}

impl NewsWatcher {
    pub(crate) fn new(store: &dyn Store, pace: Pace) -> Result<NewsWatcher, StoreError> {
        Ok(NewsWatcher { watcher: Watcher::new(store, pace)?, poll_at: Instant::now() })
    }

    /// Returns the streams and delayed events that have changed since the last poll, if any.
    pub(crate) fn poll(&mut self, store: &dyn Store) -> Result<Option<News>, StoreError> {
        // If this poll fails, the next one comes soon.
        self.poll_at = Instant::now() + self.watcher.pause();
        let poll = self.watcher.poll(store, |changes| {
            let delayed = changes.delayed || !changes.complete;
            let delayed = delayed.then(|| boot::delayed(store)).transpose()?;
            let reaches =
                changed_streams(store, changes, |stream, start, next| Reach { stream, start, next })?;
            Ok(News { reaches, delayed })
        })?;
        self.poll_at = Instant::now() + poll.pause;
        Ok(poll.news.filter(|news| !news.reaches.is_empty() || news.delayed.is_some()))
    }
}

pub(crate) fn reach(bounds: StreamBounds) -> Reach {
    Reach { stream: bounds.stream, start: bounds.start, next: bounds.next }
}
