//! A shared store whose copy is a store in memory, and whose leader and status the test sets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use millrace_bus::BusLimits;
use millrace_server::{FollowPhase, FollowStatus, FollowedStore, Follower, ServerSettings};
use millrace_store::{MemoryStore, Store};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::support::start_on;

pub(crate) const LEADER: &str = "http://10.1.2.3:7070";
pub(crate) const LEADER_WS: &str = "ws://10.1.2.3:7070/";

pub(crate) struct Fake {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) leader: Mutex<Option<String>>,
    pub(crate) status: Mutex<FollowStatus>,
    /// How often the status was looked at.
    pub(crate) looks: AtomicU64,
}

impl Fake {
    pub(crate) fn new(store: Arc<MemoryStore>) -> Arc<Fake> {
        let status = FollowStatus {
            phase: FollowPhase::Following,
            reachable: Ok(()),
            position: 41,
            head_seen: 42,
            silent_for: Some(Duration::from_millis(1500)),
            lost_events: 3,
        };
        Arc::new(Fake {
            store,
            leader: Mutex::new(Some(LEADER.to_owned())),
            status: Mutex::new(status),
            looks: AtomicU64::new(0),
        })
    }

    pub(crate) fn empty() -> Arc<Fake> {
        Fake::new(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut FollowStatus)) {
        change(&mut self.status.lock());
    }
}

impl FollowedStore for Fake {
    fn store(&self) -> Option<Arc<dyn Store>> {
        let is_open = !matches!(self.status.lock().phase, FollowPhase::Opening(_));
        is_open.then(|| self.store.clone() as Arc<dyn Store>)
    }

    fn leader(&self) -> Option<String> {
        self.leader.lock().clone()
    }

    fn status(&self) -> FollowStatus {
        self.looks.fetch_add(1, SeqCst);
        self.status.lock().clone()
    }
}

pub(crate) async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

pub(crate) async fn follow(settings: ServerSettings, fake: &Arc<Fake>) -> Follower {
    Follower::start(settings, fake.clone(), &BusLimits::default(), listener().await).unwrap()
}

/// Runs a leader on the store until `fill` is done.
pub(crate) async fn filled(fill: impl AsyncFnOnce(SocketAddr)) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let settings = ServerSettings { metrics_interval_ms: 0, ..ServerSettings::default() };
    let server = start_on(settings, BusLimits::default(), store.clone()).await;
    fill(server.addr()).await;
    server.stop().await.unwrap();
    store
}
