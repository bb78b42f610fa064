//! Finds commits of other processes to the store; called by the writer between its own commits.
//!
//! Only the writer can tell its own commits from others without bookkeeping: its own are reported to the engine first,
//! so they are no news to it. Everything else that is new was committed by another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use millrace_bus::{ForeignDelays, LogBounds};
use millrace_shell::{Watcher, changed_streams};
use millrace_store::{Pace, Store, StoreError, StreamBounds};

use crate::boot;
use crate::command::BrokerInbox;

pub(crate) struct NewsWatcher {
    watcher: Watcher,
    poll_at: Instant,
    bell: NewsBell,
}

/// Makes a worker poll the store. Rung by the store, because others have committed something, and for batches of this
/// process that the engine has not asked for.
#[derive(Clone, Debug)]
pub(crate) struct NewsBell {
    /// Rung since the last poll.
    is_rung: Arc<AtomicBool>,
    inbox: Arc<BrokerInbox>,
}

impl NewsBell {
    pub(crate) fn new(inbox: Arc<BrokerInbox>) -> NewsBell {
        NewsBell { is_rung: Arc::default(), inbox }
    }

    pub(crate) fn ring(&self) {
        self.is_rung.store(true, Relaxed);
        // The inbox's lock orders the flag before the maintenance that polls.
        self.inbox.want_maintenance();
    }
}

/// The findings of a poll, as the engine is told them.
#[derive(Debug)]
pub(crate) struct News {
    /// Streams that a process, perhaps this one, has appended to or trimmed since the last poll.
    pub(crate) bounds: Vec<LogBounds>,
    /// Set if a process has delayed events since the last poll.
    pub(crate) delayed: Option<ForeignDelays>,
}

impl NewsWatcher {
    /// The bell is rung when the store tells of commits of others.
    pub(crate) fn new(store: &dyn Store, pace: Pace, bell: NewsBell) -> Result<NewsWatcher, StoreError> {
        let rung = bell.clone();
        let wake = Arc::new(move || rung.ring());
        Ok(NewsWatcher { watcher: Watcher::new(store, pace, wake)?, poll_at: Instant::now(), bell })
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.bell.is_rung.load(Relaxed) || now >= self.poll_at
    }

    /// Returns when a poll is due if the store tells of nothing before.
    pub(crate) fn poll_at(&self) -> Instant {
        self.poll_at
    }

    /// Returns the streams and delayed events that have changed since the last poll, if any.
    pub(crate) fn poll(&mut self, store: &dyn Store) -> Result<Option<News>, StoreError> {
        // Before the poll: a commit that the bell is rung for from now on is polled for again.
        if self.bell.is_rung.swap(false, Relaxed) {
            self.watcher.woken();
        }
        // If this poll fails, the next one comes soon.
        self.poll_at = Instant::now() + self.watcher.pause();
        let poll = self.watcher.poll(store, |changes| {
            let delayed = changes.delayed || !changes.complete;
            let delayed = delayed.then(|| boot::delayed(store)).transpose()?;
            let bounds =
                changed_streams(store, changes, |stream, start, next| LogBounds { stream, start, next })?;
            Ok(News { bounds, delayed })
        })?;
        self.poll_at = Instant::now() + poll.pause;
        Ok(poll.news.filter(|news| !news.bounds.is_empty() || news.delayed.is_some()))
    }
}

pub(crate) fn log_bounds(bounds: StreamBounds) -> LogBounds {
    LogBounds { stream: bounds.stream, start: bounds.start, next: bounds.next }
}
