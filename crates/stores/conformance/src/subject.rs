//! A store under test, with short methods that panic when the store fails.

use std::fmt;

use millrace_model::{Appended, Batch, Claim, Claimed, Done, Offset, Op, Outcome, Space, Stream, Timestamp};

use crate::build::batch;
use millrace_store::{
    Changes, CommitNumber, KeyRange, Page, ReadLimit, Retention, Store, StoreError, StreamBounds,
};

type Reopen = Box<dyn Fn(Box<dyn Store>) -> Box<dyn Store>>;
type OpenBeside = Box<dyn Fn() -> Box<dyn Store>>;

/// A fresh store, and the functions that open it again: after closing it, or beside the handle that is open.
pub struct Subject {
    store: Option<Box<dyn Store>>,
    reopen: Reopen,
    open_beside: Option<OpenBeside>,
}

/// Large enough for every page of the suite.
pub(super) const WHOLE: ReadLimit = ReadLimit { events_max: 1_000_000, bytes_max: usize::MAX };

impl Subject {
    /// `reopen` is given the store to close it; the values it captures (a temporary folder, say) live as long as the
    /// subject.
    pub fn new(
        store: Box<dyn Store>,
        reopen: impl Fn(Box<dyn Store>) -> Box<dyn Store> + 'static,
    ) -> Subject {
        Subject { store: Some(store), reopen: Box::new(reopen), open_beside: None }
    }

    /// Adds the function that opens a further handle on the same store. Adapters whose stores only one handle can reach
    /// leave it out.
    pub fn open_beside(mut self, open: impl Fn() -> Box<dyn Store> + 'static) -> Subject {
        self.open_beside = Some(Box::new(open));
        self
    }

    /// Opens a further handle; `None` if a store has only one.
    pub fn beside(&self) -> Option<Box<dyn Store>> {
        self.open_beside.as_ref().map(|open| open())
    }

    pub fn store(&self) -> &dyn Store {
        match &self.store {
            Some(store) => store.as_ref(),
            None => panic!("reopening failed earlier"),
        }
    }

    pub fn reopen(&mut self) {
        let store = self.store.take();
        self.store = store.map(|store| (self.reopen)(store));
    }

    pub fn commit(&self, batches: &[Batch]) -> Vec<Outcome> {
        sound(self.store().commit(batches))
    }

    /// Commits one batch that must not be refused.
    pub fn done(&self, batch: Batch) -> Vec<Appended> {
        self.all_done(batch).appended
    }

    pub fn all_done(&self, batch: Batch) -> Done {
        match self.commit(&[batch]).as_slice() {
            [Outcome::Done(done)] => done.clone(),
            other => panic!("expected one batch done, got {other:?}"),
        }
    }

    pub fn claim(&self, now: u64, claim: Claim) -> Vec<Claimed> {
        self.all_done(batch(now, vec![Op::Claim(claim)])).claimed
    }

    pub fn page(&self, stream: &Stream, from: u64, limit: ReadLimit) -> Page {
        sound(self.store().read(stream, Offset(from), limit))
    }

    /// Returns the payloads of all retained events.
    pub fn payloads(&self, stream: &Stream) -> Vec<String> {
        let page = self.page(stream, 0, WHOLE);
        assert_eq!(page.damaged, [], "{stream}");
        page.events.iter().map(|event| event.body.payload.as_str().to_owned()).collect()
    }

    pub fn seek(&self, stream: &Stream, ts: u64) -> u64 {
        sound(self.store().seek(stream, Timestamp(ts))).0
    }

    pub fn retention_start(&self, stream: &Stream, rule: Retention) -> u64 {
        sound(self.store().retention_start(stream, rule)).0
    }

    /// Returns rows as `key=value` text. Asserts that `scan_keys` finds the same keys.
    pub fn rows(&self, space: Space, range: &KeyRange, rows_max: usize) -> Vec<String> {
        let rows = sound(self.store().scan(space, range, rows_max));
        let keys = sound(self.store().scan_keys(space, range, rows_max));
        assert!(rows.iter().map(|row| &row.key).eq(&keys), "{space:?} {range:?}: {keys:?}");
        rows.iter().map(|row| format!("{}={}", row.key, String::from_utf8_lossy(&row.value))).collect()
    }

    pub fn table(&self, space: Space) -> Vec<String> {
        self.rows(space, &KeyRange::all(), usize::MAX)
    }

    /// Returns the streams sorted by name: the port does not promise an order.
    pub fn streams(&self) -> Vec<StreamBounds> {
        let mut streams = sound(self.store().streams());
        streams.sort_by(|a, b| a.stream.cmp(&b.stream));
        streams
    }

    pub fn watch(&self, after: CommitNumber, commits_max: usize) -> Changes {
        sound(self.store().watch(after, commits_max))
    }

    /// Does housekeeping until nothing is left and returns how many rows that were. Panics when it never ends.
    pub fn maintain_all(&self, rows_max: usize) -> usize {
        let mut rows = 0;
        for _ in 0..1_000_000 {
            let done = sound(self.store().maintain(rows_max));
            rows += done.rows;
            if !done.more {
                return rows;
            }
        }
        panic!("maintenance does not come to an end");
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").finish_non_exhaustive()
    }
}

pub(super) fn sound<T>(result: Result<T, StoreError>) -> T {
    result.unwrap_or_else(|error| panic!("the store failed: {error}"))
}
