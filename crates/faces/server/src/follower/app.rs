//! The state that all handlers of requests share, on a server that follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_kernel::Mint;
use millrace_store::Store;
use millrace_wire::http::TopicDefaults;

use crate::edge::SharedEdge;
use crate::follower::{FollowPhase, FollowedStore};
use crate::moved::Moved;
use crate::refusal::Refusal;

pub(crate) type SharedFollower = Arc<FollowerApp>;

pub(crate) struct FollowerApp {
    pub(crate) edge: SharedEdge,
    pub(crate) followed: Arc<dyn FollowedStore>,
    /// The settings of topics that do not set their own.
    pub(crate) topic_defaults: TopicDefaults,
    /// Makes the ids of messages of the CQRS loop.
    pub(crate) mint: Mint,
    pub(crate) moved: MovedCounts,
    damaged: AtomicU64,
}

/// The edge that an answer `moved` left by: a closed list, because it is a label of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Via {
    Http,
    WebSocket,
    /// `/os`, the CQRS loop over a WebSocket.
    Os,
    /// The Unix socket of the CQRS loop.
    Socket,
}

/// How often each edge has answered `moved`.
#[derive(Debug, Default)]
pub(crate) struct MovedCounts([AtomicU64; 4]);

impl MovedCounts {
    fn count(&self, via: Via) {
        if let Some(count) = self.0.get(via as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ["http", "ws", "os", "socket"];
        names.into_iter().zip(self.0.iter().map(|count| count.load(Relaxed)))
    }
}

impl FollowerApp {
    pub(crate) fn new(
        edge: SharedEdge,
        followed: Arc<dyn FollowedStore>,
        topic_defaults: TopicDefaults,
        mint: Mint,
    ) -> FollowerApp {
        let (moved, damaged) = (MovedCounts::default(), AtomicU64::new(0));
        FollowerApp { edge, followed, topic_defaults, mint, moved, damaged }
    }

    /// Makes the answer `moved` and counts it.
    pub(crate) fn moved(&self, via: Via) -> Moved {
        self.moved.count(via);
        Moved::to(self.followed.leader())
    }

    /// Returns the copy.
    ///
    /// # Errors
    ///
    /// Refuses the request while the copy cannot be read. The leader can serve it, so its URL is told.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, Refusal> {
        self.followed.store().ok_or_else(|| {
            let why = match self.followed.status().phase {
                FollowPhase::Opening(what) => what,
                FollowPhase::Following | FollowPhase::TakingOver => "it changes its part".to_owned(),
            };
            self.moved.count(Via::Http);
            let why = format!("this server's copy of the store cannot be read at the moment ({why})");
            Moved::to(self.followed.leader()).refusal_because(&why)
        })
    }

    pub(crate) fn count_damaged(&self, events: usize) {
        self.damaged.fetch_add(events as u64, Relaxed);
    }

    pub(crate) fn damaged(&self) -> u64 {
        self.damaged.load(Relaxed)
    }
}

/// The handler of every request that only the leader can serve.
pub(crate) async fn moved(axum::extract::State(app): axum::extract::State<SharedFollower>) -> Refusal {
    app.moved(Via::Http).refusal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_has_its_own_count() {
        let counts = MovedCounts::default();
        for (via, times) in [(Via::Http, 1), (Via::WebSocket, 2), (Via::Os, 3), (Via::Socket, 4)] {
            for _ in 0..times {
                counts.count(via);
            }
        }
        let found: Vec<_> = counts.each().collect();
        assert_eq!(found, [("http", 1), ("ws", 2), ("os", 3), ("socket", 4)]);
    }
}
