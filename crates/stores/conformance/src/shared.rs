//! Subjects of a store that several handles share, each with a copy of its own: one handle alone, or twins.
//!
//! The adapter's tests say how a handle is opened; the name of its copy tells the handles of a subject apart.

use std::fmt;
use std::rc::Rc;

use millrace_model::{Batch, Offset, Outcome, Space, Stream, Timestamp};
use millrace_store::{
    Changes, CommitNumber, KeyRange, Maintained, Page, ReadLimit, Retention, Row, Store, StoreError,
    StreamBounds,
};

use crate::subject::{Subject, sound};
use crate::twins::{Follows, Twins};

/// A handle without a thread that follows others: it follows before every read.
pub struct FollowingHandle<S> {
    store: S,
    follow: fn(&S) -> Result<u64, StoreError>,
}

impl<S: Store> FollowingHandle<S> {
    /// `follow` folds what others have written.
    pub fn new(store: S, follow: fn(&S) -> Result<u64, StoreError>) -> FollowingHandle<S> {
        FollowingHandle { store, follow }
    }

    fn followed(&self) -> &S {
        self.follow();
        &self.store
    }
}

impl<S: Store> Follows for FollowingHandle<S> {
    fn follow(&self) {
        sound((self.follow)(&self.store));
    }
}

impl<S: Store> Store for FollowingHandle<S> {
    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.store.commit(batches)
    }

    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }

    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        self.followed().read(stream, from, limit)
    }

    fn seek(&self, stream: &Stream, ts: Timestamp) -> Result<Offset, StoreError> {
        self.followed().seek(stream, ts)
    }

    fn retention_start(&self, stream: &Stream, rule: Retention) -> Result<Offset, StoreError> {
        self.followed().retention_start(stream, rule)
    }

    fn scan(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<Row>, StoreError> {
        self.followed().scan(space, range, rows_max)
    }

    fn scan_keys(&self, space: Space, range: &KeyRange, rows_max: usize) -> Result<Vec<String>, StoreError> {
        self.followed().scan_keys(space, range, rows_max)
    }

    fn streams(&self) -> Result<Vec<StreamBounds>, StoreError> {
        self.followed().streams()
    }

    fn watch(&self, after: CommitNumber, commits_max: usize) -> Result<Changes, StoreError> {
        self.followed().watch(after, commits_max)
    }

    fn claim_serving(&self) -> Result<(), StoreError> {
        self.store.claim_serving()
    }

    fn is_served_elsewhere(&self) -> bool {
        self.store.is_served_elsewhere()
    }
}

/// Returns a subject with one handle on a shared store. `open` opens the handle with the copy of that name; the values
/// that it captures live as long as the subject.
pub fn alone<S: Store + 'static>(open: impl Fn(&str) -> FollowingHandle<S> + 'static) -> Subject {
    shared_subject(open, |open| Box::new(open("alone")))
}

/// Returns a subject with two handles on a shared store, which commit in turn.
pub fn in_turn<S: Store + 'static>(open: impl Fn(&str) -> FollowingHandle<S> + 'static) -> Subject {
    shared_subject(open, |open| Box::new(Twins::new(Box::new(open("one")), Box::new(open("two")))))
}

fn shared_subject<S, F>(open: F, make: fn(&F) -> Box<dyn Store>) -> Subject
where
    S: Store + 'static,
    F: Fn(&str) -> FollowingHandle<S> + 'static,
{
    let open = Rc::new(open);
    let again = open.clone();
    let subject = Subject::new(make(&open), move |store| {
        // Its copy must be closed before it is opened again.
        drop(store);
        make(&again)
    });
    subject.open_beside(move || Box::new(open("beside")))
}

impl<S> fmt::Debug for FollowingHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowingHandle").finish_non_exhaustive()
    }
}
