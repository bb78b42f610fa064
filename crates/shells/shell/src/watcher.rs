//! Finds what others have committed to the store: polls `Store::watch` from where the last poll ended.
//!
//! A watcher reports the commits of this process as well. The broker polls between its own commits, after the engine
//! has been told of them, so that only commits of others are news; a session treats all commits alike.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_model::{Offset, Stream};
use millrace_store::{Changes, CommitNumber, Pace, Store, StoreError, StreamBounds, newest_commit};

/// Commits read in one poll; if there are more, the next poll follows at once.
const COMMITS_MAX: usize = 1024;

#[derive(Debug)]
pub struct Watcher {
    after: CommitNumber,
    pace: Pace,
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
    /// commit in between is then reported twice instead of never.
    pub fn new(store: &dyn Store, pace: Pace) -> Result<Watcher, StoreError> {
        Ok(Watcher { after: newest_commit(store)?, pace })
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
        let pause = self.pace.after(found, found || store.has_others());
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
