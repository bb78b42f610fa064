//! A store that stops, fails or panics on demand, and a broker on it.
#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millrace_broker::{Broker, BrokerSettings};
use millrace_bus::{BusLimits, Publish, Request};
use millrace_model::{Batch, EventBody, JsonText, NewEvent, Offset, Outcome, Stream, TopicKey};
use millrace_store::{Maintained, MemoryStore, Page, ReadLimit, Store, StoreError};

/// A store with a gate: commits wait while it is shut, and fail or panic on demand.
pub(crate) struct Disk {
    pub(crate) store: MemoryStore,
    shut: Mutex<bool>,
    opened: Condvar,
    pub(crate) fails: AtomicBool,
    /// Commits write nothing.
    pub(crate) full: AtomicBool,
    pub(crate) panics: AtomicBool,
    /// Commits that have begun; they may wait at the gate.
    pub(crate) begun: AtomicUsize,
    pub(crate) commits: AtomicUsize,
    /// Commits by threads that are not the workers's.
    pub(crate) by_helpers: AtomicUsize,
    pub(crate) unreadable: AtomicUsize,
    /// The largest batch it accepts.
    pub(crate) bytes_max: AtomicUsize,
}

impl Disk {
    pub(crate) fn new() -> Arc<Disk> {
        Arc::new(Disk {
            store: MemoryStore::new(),
            shut: Mutex::new(false),
            opened: Condvar::new(),
            fails: AtomicBool::new(false),
            full: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            by_helpers: AtomicUsize::new(0),
            unreadable: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(usize::MAX),
        })
    }

    pub(crate) fn shut(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.opened.notify_all();
    }
}

impl Store for Disk {
    millrace_conformance::forward_rest_to!(store);

    fn commit(&self, batches: &[Batch]) -> Result<Vec<Outcome>, StoreError> {
        self.begun.fetch_add(1, SeqCst);
        drop(self.opened.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
        assert!(!self.panics.load(SeqCst), "a bug in the store");
        if self.fails.load(SeqCst) {
            return Err(StoreError::Poisoned("disk full".into()));
        }
        if self.full.load(SeqCst) {
            return Err(StoreError::NoSpace("just now".into()));
        }
        let max = self.bytes_max.load(SeqCst);
        if let Some(bytes) = batches.iter().map(Batch::bytes).find(|bytes| *bytes > max) {
            return Err(StoreError::TooLarge { bytes, max });
        }
        self.commits.fetch_add(1, SeqCst);
        if std::thread::current().name() != Some("millrace-workers") {
            self.by_helpers.fetch_add(1, SeqCst);
        }
        self.store.commit(batches)
    }
    fn read(&self, stream: &Stream, from: Offset, limit: ReadLimit) -> Result<Page, StoreError> {
        let fails = self.unreadable.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        match fails {
            Ok(_) => Err(StoreError::Unreadable("just now".into())),
            Err(_) => self.store.read(stream, from, limit),
        }
    }
    fn maintain(&self, rows_max: usize) -> Result<Maintained, StoreError> {
        self.store.maintain(rows_max)
    }
}

pub(crate) fn start(settings: BrokerSettings, disk: &Arc<Disk>) -> Broker {
    let store: Arc<dyn Store> = disk.clone();
    Broker::start(settings, &store, BusLimits::default()).unwrap()
}

pub(crate) fn topic() -> TopicKey {
    TopicKey::parse("default/t").unwrap()
}

pub(crate) fn publish(bytes: usize) -> Request {
    let payload = JsonText::parse(&format!("{:?}", "x".repeat(bytes))).unwrap();
    let event = NewEvent { id: None, body: Arc::new(EventBody::of(payload)) };
    Request::Publish(Publish { topic: topic(), event, deliver_at: None })
}

/// Polls until a condition holds.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
