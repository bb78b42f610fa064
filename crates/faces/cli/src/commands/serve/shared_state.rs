//! The shared store of this server as its edges see it, while the store is opened, followed, led and opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use millrace_server::{FollowPhase, FollowStatus, FollowedStore, Unreachable};
use millrace_store::Store;
use millrace_stores::JournalStore;
use parking_lot::RwLock;

#[derive(Debug)]
pub(super) struct SharedState {
    now: RwLock<StoreNow>,
    /// The losses that handles before the present one have found.
    lost_events: AtomicU64,
}

#[derive(Debug)]
enum StoreNow {
    /// The store is being opened; the text says what that waits for or does.
    Opening {
        text: String,
        /// Since when the engine cannot be reached or refuses.
        away_since: Option<Instant>,
    },
    Open {
        store: Arc<JournalStore>,
        takes_over: bool,
    },
}

impl SharedState {
    pub(super) fn new() -> SharedState {
        let text = "the shared store is being opened".to_owned();
        SharedState {
            now: RwLock::new(StoreNow::Opening { text, away_since: None }),
            lost_events: AtomicU64::new(0),
        }
    }

    /// The store is being opened, and the engine answers.
    pub(super) fn opening(&self, text: String) {
        self.replace(StoreNow::Opening { text, away_since: None });
    }

    /// The store cannot be opened now: the engine is away, refuses, or has ended the last handle.
    pub(super) fn cannot_open(&self, text: String) {
        let away_since = match &*self.now.read() {
            StoreNow::Opening { away_since: Some(since), .. } => *since,
            _ => Instant::now(),
        };
        self.replace(StoreNow::Opening { text, away_since: Some(away_since) });
    }

    fn replace(&self, next: StoreNow) {
        let mut now = self.now.write();
        if let StoreNow::Open { store, .. } = &*now {
            self.lost_events.fetch_add(store.status().lost_events, Relaxed);
        }
        *now = next;
    }

    pub(super) fn open(&self, store: Arc<JournalStore>, takes_over: bool) {
        *self.now.write() = StoreNow::Open { store, takes_over };
    }
}

impl FollowedStore for SharedState {
    fn store(&self) -> Option<Arc<dyn Store>> {
        match &*self.now.read() {
            StoreNow::Opening { .. } => None,
            StoreNow::Open { store, .. } => Some(store.clone()),
        }
    }

    fn leader(&self) -> Option<String> {
        match &*self.now.read() {
            StoreNow::Opening { .. } => None,
            StoreNow::Open { store, .. } => store.status().leader_url,
        }
    }

    fn status(&self) -> FollowStatus {
        match &*self.now.read() {
            StoreNow::Opening { text, away_since } => FollowStatus {
                phase: FollowPhase::Opening(text.clone()),
                reachable: away_since.map_or(Ok(()), |since| {
                    Err(Unreachable { away_for: since.elapsed(), reason: text.clone() })
                }),
                position: 0,
                head_seen: 0,
                silent_for: None,
                lost_events: self.lost_events.load(Relaxed),
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
                    lost_events: self.lost_events.load(Relaxed) + status.lost_events,
                }
            }
        }
    }
}

fn away_for(since_ms: u64) -> Duration {
    let since = std::time::UNIX_EPOCH + Duration::from_millis(since_ms);
    since.elapsed().unwrap_or_default()
}
