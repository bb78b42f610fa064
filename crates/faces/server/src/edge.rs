//! The state that all edges share, whether this server leads or follows: settings, access control, bounds on peers, and
//! the record of refusals. Bus, CQRS loop and store are not here (`app.rs` has those of a leader).

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use millrace_broker::SystemClock;
use millrace_store::{Store, StoreError};
use millrace_wire::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::access::{Audit, Tokens};
use crate::connections::Connections;
use crate::fairness::{Evictions, Frames, Room, SeatRule, Seats, share_of};
use crate::follower::FollowedStore;
use crate::latencies::Latencies;
use crate::lead_doubt::LeadDoubt;
use crate::observe::{AuditLog, HttpRequester};
use crate::refusal::Refusal;
use crate::reload::Reload;
use crate::settings::ServerSettings;

pub(crate) type SharedEdge = Arc<Edge>;

pub(crate) struct Edge {
    pub(crate) settings: ServerSettings,
    pub(crate) listen: SocketAddr,
    pub(crate) clock: SystemClock,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) audit: Audit,
    /// Changes when tokens were replaced, so that connections check whether theirs is still valid.
    pub(crate) reloads: watch::Sender<u64>,
    /// The configuration that the last reload brought.
    pub(crate) reloaded: Mutex<Option<Reload>>,
    pub(crate) audit_log: AuditLog,
    /// Seats of WebSockets whose caller is known, or need not be known.
    pub(crate) seats: Arc<Seats>,
    /// Seats of WebSockets that have not shown a token yet.
    pub(crate) unauthenticated: Arc<Seats>,
    pub(crate) evictions: Arc<Evictions>,
    /// Memory for WebSocket frames that are not complete.
    pub(crate) frames: Arc<Frames>,
    /// Memory for bodies that are being read.
    pub(crate) bodies: Arc<Room>,
    reads: Semaphore,
    /// Memory for pages that are being made or wait to be read by the client.
    pub(crate) pages: Arc<Room>,
    /// True once connections are to finish their work and close.
    pub(crate) closing: watch::Receiver<bool>,
    /// This server's copy of a store that several servers share. Not set for a store that this server has alone.
    pub(crate) copy: OnceLock<Arc<dyn FollowedStore>>,
    pub(crate) doubt: LeadDoubt,
    /// Seats of tails and of searches that wait.
    pub(crate) tails: Arc<Semaphore>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) latencies: Latencies,
}

impl Edge {
    pub(crate) fn new(
        settings: ServerSettings,
        listen: SocketAddr,
        clock: SystemClock,
        tokens: Arc<Tokens>,
        audit_log: AuditLog,
        closing: watch::Receiver<bool>,
    ) -> Edge {
        let evictions = Arc::new(Evictions::default());
        let tails_max = settings.tails_max;
        let room = |bytes_max| Room::new(bytes_max, share_of(bytes_max, settings.caller_share_percent));
        let seats = |max, rule| Seats::new(max, rule, evictions.clone());
        Edge {
            seats: seats(settings.connections_max, SeatRule::FairShare),
            unauthenticated: seats(settings.unauthenticated_connections_max, SeatRule::Oldest),
            frames: Frames::new(settings.frames_bytes_max, evictions.clone()),
            bodies: room(settings.bodies_bytes_max),
            pages: room(settings.pages_bytes_max),
            reads: Semaphore::new(settings.reads_max),
            evictions: evictions.clone(),
            clock,
            tokens,
            audit: Audit::default(),
            reloads: watch::Sender::new(0),
            reloaded: Mutex::new(None),
            audit_log,
            settings,
            listen,
            closing,
            copy: OnceLock::new(),
            doubt: LeadDoubt::default(),
            tails: Arc::new(Semaphore::new(tails_max)),
            connections: Arc::default(),
            latencies: Latencies::default(),
        }
    }

    /// Tells the edges that the store is shared. The first call counts.
    pub(crate) fn share_store(&self, copy: Arc<dyn FollowedStore>) {
        let _ = self.copy.set(copy);
    }

    /// The URL of the server that leads the shared store, as far as it is known.
    pub(crate) fn leader(&self) -> Option<String> {
        self.copy.get()?.leader()
    }

    /// Reads from a store on a thread that may block, at most `reads_max` reads at a time.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        store: Arc<dyn Store>,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _turn = HttpRequester::wait_for(self.reads.acquire()).await?;
        let failed = |reason: String| Refusal::new(ErrorCode::StorageFailed, reason);
        match tokio::task::spawn_blocking(move || read(&*store)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("the store could not be read".to_owned())),
        }
    }
}
