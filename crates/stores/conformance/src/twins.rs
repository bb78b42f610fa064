//! Two handles on one shared store that commit in turn, each with a copy of its own. They must behave like one store,
//! and their copies must be equal in the end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use millrace_model::{Batch, Outcome, Space};
use millrace_store::{KeyRange, Maintained, Store, StoreError};

use crate::subject::{WHOLE, sound};

/// A handle on a shared store that can be told to fold what others have written.
pub trait Follows: Store {
    fn follow(&self);
}

/// Commits go to one handle and the other in turn; reads go to the first one, after it has followed.
pub struct Twins {
    first: Box<dyn Follows>,
    second: Box<dyn Follows>,
    commits: AtomicUsize,
}

impl Twins {
    pub fn new(first: Box<dyn Follows>, second: Box<dyn Follows>) -> Twins {
        Twins { first, second, commits: AtomicUsize::new(0) }
    }

    /// Panics if the copies differ, after both have done all their housekeeping.
    pub fn compare(&self) {
        for handle in [&self.first, &self.second] {
            handle.follow();
            while sound(handle.maintain(1_000)).more {}
        }
        let streams = |handle: &dyn Follows| {
            let mut streams = sound(handle.streams());
            streams.sort_by(|one, other| one.stream.cmp(&other.stream));
            // The sizes of removed events are subtracted when a copy does its housekeeping.
            streams.iter_mut().for_each(|bounds| bounds.bytes = 0);
            streams
        };
        let (ours, theirs) = (streams(self.first.as_ref()), streams(self.second.as_ref()));
        assert_eq!(ours, theirs, "streams");
        let mut events = BTreeSet::new();
        for bounds in ours {
            let page = |handle: &dyn Follows| sound(handle.read(&bounds.stream, bounds.start, WHOLE));
            let ours = page(self.first.as_ref());
            assert_eq!(ours, page(self.second.as_ref()), "{}", bounds.stream);
            events
                .extend(ours.events.iter().map(|event| format!("{}/{:016x}", bounds.stream, event.offset.0)));
        }
        for space in Space::ALL {
            let rows = |handle: &dyn Follows| {
                let mut rows = sound(handle.scan(space, &KeyRange::all(), usize::MAX));
                // Rows about events that are gone stay until housekeeping comes by, which every copy does for itself.
                rows.retain(|row| {
                    let event = row.key.rsplit_once('/').map_or(row.key.as_str(), |(event, _)| event);
                    space != Space::Finished || events.contains(event)
                });
                rows
            };
            assert_eq!(rows(self.first.as_ref()), rows(self.second.as_ref()), "{space:?}");
        }
    }
}

impl Store for Twins {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        let is_first = self.commits.fetch_add(1, Relaxed).is_multiple_of(2);
        let outcomes = if is_first { &self.first } else { &self.second }.commit(batches);
        self.first.follow();
        outcomes
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        let (first, second) = (self.first.maintain(rows_max)?, self.second.maintain(rows_max)?);
        Ok(Maintained { rows: first.rows.max(second.rows), more: first.more || second.more })
    }

    crate::forward_reads_to!(first);
}

impl Drop for Twins {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.compare();
        }
    }
}

impl std::fmt::Debug for Twins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Twins").field("commits", &self.commits).finish_non_exhaustive()
    }
}
