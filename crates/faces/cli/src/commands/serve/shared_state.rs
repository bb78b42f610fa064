//! The shared store of this server as its edges see it, while the store is opened, followed, led and opened again.

use std::sync::Arc;
use std::time::Duration;

use millrace_server::{FollowPhase, FollowStatus, FollowedStore, Unreachable};
use millrace_store::Store;
use millrace_stores::JournalStore;
use parking_lot::RwLock;

#[derive(Debug)]
pub(super) struct SharedState {
    now: RwLock<StoreNow>,
}

#[derive(Debug)]
enum StoreNow {
    /// The store is being opened; the text says what that waits for.
    Opening(String),
    Open {
        store: Arc<JournalStore>,
        takes_over: bool,
    },
}

impl SharedState {
    pub(super) fn new() -> SharedState {
        SharedState { now: RwLock::new(StoreNow::Opening("the shared store is being opened".to_owned())) }
    }

    pub(super) fn opening(&self, text: String) {
        *self.now.write() = StoreNow::Opening(text);
    }

    pub(super) fn open(&self, store: Arc<JournalStore>, takes_over: bool) {
        *self.now.write() = StoreNow::Open { store, takes_over };
    }
}

impl FollowedStore for SharedState {
    fn store(&self) -> Option<Arc<dyn Store>> {
        match &*self.now.read() {
            StoreNow::Opening(_) => None,
            StoreNow::Open { store, .. } => Some(store.clone()),
        }
    }

    fn leader(&self) -> Option<String> {
        match &*self.now.read() {
            StoreNow::Opening(_) => None,
            StoreNow::Open { store, .. } => store.status().leader_url,
        }
    }

    fn status(&self) -> FollowStatus {
        match &*self.now.read() {
            StoreNow::Opening(text) => FollowStatus {
                phase: FollowPhase::Opening(text.clone()),
                reachable: Ok(()),
                position: 0,
                head_seen: 0,
                silent_for: None,
            },
            StoreNow::Open { store, takes_over } => {
                let status = store.status();
                let phase = match (&status.ended, takes_over) {
                    (Some(reason), _) => FollowPhase::Opening(reason.clone()),
                    (None, true) => FollowPhase::TakingOver,
                    (None, false) => FollowPhase::Following,
                };
                let reachable = match status.unreachable {
                    Some(away) => Err(Unreachable { away_for: away_for(away.since_ms), reason: away.reason }),
                    None => Ok(()),
                };
                FollowStatus {
                    phase,
                    reachable,
                    position: status.position.n,
                    head_seen: status.head_seen,
                    silent_for: Some(Duration::from_millis(status.silent_ms)),
                }
            }
        }
    }
}

fn away_for(since_ms: u64) -> Duration {
    let since = std::time::UNIX_EPOCH + Duration::from_millis(since_ms);
    since.elapsed().unwrap_or_default()
}
