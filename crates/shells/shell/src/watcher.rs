//! Finds what others have committed to the store: polls `Store::watch` from where the last poll ended, when the store
//! calls (`Store::wake_on_news`), and as often as the handles that do not tell of their commits make it necessary.
//!
//! A watcher reports the commits of this process as well. The broker polls between its own commits, after the engine
//! has been told of them, so that only commits of others are news; a session treats all commits alike.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use millrace_model::{Offset, Stream};
use millrace_store::{Changes, CommitNumber, NewsWake, Pace, Store, StoreError, StreamBounds, newest_commit};

/// Commits read in one poll; if there are more, the next poll follows at once.
const COMMITS_MAX: usize = 1024;

pub struct Watcher {
    after: CommitNumber,
    pace: Pace,
    /// The store has called since the last poll that found nothing.
    is_woken: bool,
    /// Kept, because the store calls only as long as this lives.
    _wake: NewsWake,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("after", &self.after)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// The findings of a poll.
#[derive(Debug)]
pub struct Poll<T> {
    /// `None` if nothing was committed since the last poll.
    pub news: Option<T>,
    /// When the next poll is due.
    pub pause: Duration,
    /// More commits wait than a poll reads; the pause is zero.
    pub more: bool,
}

impl Watcher {
    /// Starts after the newest commit. Whatever else is read from the store at the start must be read after this: a
    /// commit in between is then reported twice instead of never. `wake` is called when a poll is worth while.
    pub fn new(store: &dyn Store, pace: Pace, wake: NewsWake) -> Result<Watcher, StoreError> {
        // Before the newest commit is read: a commit in between is told of, although it is no news.
        if let Err(error) = store.wake_on_news(&wake) {
            tracing::warn!(
                target: "millrace::store",
                %error,
                "other processes cannot tell this one of their commits, which are found by polling"
            );
        }
        Ok(Watcher { after: newest_commit(store)?, pace, is_woken: false, _wake: wake })
    }

    /// The store has called.
    pub fn woken(&mut self) {
        self.is_woken = true;
    }

    /// Returns the pause before the next poll when a poll has failed.
    pub fn pause(&self) -> Duration {
        self.pace.busy()
    }

    /// Passes what was committed since the last poll to `read`. If `read` fails, the next poll reports the same again.
    pub fn poll<T>(
        &mut self,
        store: &dyn Store,
        read: impl FnOnce(Changes) -> Result<T, StoreError>,
    ) -> Result<Poll<T>, StoreError> {
        let changes = store.watch(self.after, COMMITS_MAX)?;
        let last = changes.last;
        let found = last != self.after;
        let news = if found { Some(read(changes)?) } else { None };
        if std::mem::take(&mut self.is_woken) && !found {
            // A handle may have been opened that does not tell of its commits, and is not seen before it has its locks.
            self.pace.restart();
        }
        let pause = self.pace.after(found, store.other_handles());
        // Counts commits, not appended events: some commits append nothing.
        let more = last.0 >= self.after.0.saturating_add(COMMITS_MAX as u64);
        self.after = last;
        Ok(Poll { news, pause: if more { Duration::ZERO } else { pause }, more })
    }
}

/// Returns where the changed streams begin and end, each made by `bounds` from stream, start and next offset. Streams
/// that were only appended to are given the first offset as their start. If the changes are incomplete, every stream of
/// the store is returned.
pub fn changed_streams<B>(
    store: &dyn Store,
    changes: Changes,
    bounds: impl Fn(Stream, Offset, Offset) -> B,
) -> Result<Vec<B>, StoreError> {
    let known = |at: StreamBounds| bounds(at.stream, at.start, at.next);
    if !changes.complete {
        return Ok(store.streams()?.into_iter().map(known).collect());
    }
    let mut ends: BTreeMap<Stream, Offset> = BTreeMap::new();
    for run in changes.runs {
        let end = ends.entry(run.stream).or_default();
        *end = (*end).max(Offset(run.first.0 + run.count));
    }
    let appended = ends.into_iter().map(|(stream, next)| bounds(stream, Offset::FIRST, next));
    Ok(appended.chain(changes.trimmed.into_iter().map(known)).collect())
}
