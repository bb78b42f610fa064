//! The lifecycle of a server that follows: start, accept, stop.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use millrace_broker::SystemClock;
use millrace_bus::BusLimits;
use millrace_child::Children;
use millrace_kernel::{Mint, SocketFile};
use rand::RngCore;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::accept::Listeners;
use crate::access::{Tokens, warn_of_expired};
use crate::edge::Edge;
use crate::follower::{FollowedStore, FollowerApp, SharedFollower, routes, socket};
use crate::observe::{AuditKinds, AuditLog};
use crate::reload::Reloader;
use crate::server::ServeError;
use crate::settings::ServerSettings;
use crate::tls::Certificate;
use crate::to_wire;

/// A running server that follows. Dropping it without [`Follower::stop`] cuts its connections.
pub struct Follower {
    addr: SocketAddr,
    app: SharedFollower,
    tls: Option<Arc<Certificate>>,
    listeners: Listeners,
    closing: watch::Sender<bool>,
    socket: Option<(SocketFile, JoinHandle<()>)>,
    /// Always `None`; its lock makes reloads wait for one another.
    children: Arc<Mutex<Option<Children>>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Follower {
    /// Starts to accept, also while the copy is still being opened. To change parts without giving up the port,
    /// `listener` is a clone of a listener that the caller keeps. Must be called on a tokio runtime.
    pub fn start(
        settings: ServerSettings,
        followed: Arc<dyn FollowedStore>,
        limits: &BusLimits,
        listener: TcpListener,
    ) -> Result<Follower, ServeError> {
        let addr = listener.local_addr().map_err(ServeError::Listener)?;
        let tls = settings.tls.as_ref().map(Certificate::read).transpose()?.map(Arc::new);
        let clock = SystemClock::start(limits.clock_settle_ms);
        warn_of_expired(&settings.tokens, &clock);
        let tokens = Arc::new(Tokens::new(&settings.tokens, settings.token_rate, clock.clone()));
        // The audit is a topic, and only the leader can write to it. The log has the refusals of a follower.
        let (audit_log, _) = AuditLog::new(AuditKinds::default(), settings.audit_records_max);
        let (closing, is_closing) = watch::channel(false);
        let max = settings.http_connections_max;
        let edge = Arc::new(Edge::new(settings, addr, clock.clone(), tokens, audit_log, is_closing));
        edge.share_store(followed.clone());
        let mint = Mint::new(rand::rng().next_u64(), clock);
        let app = Arc::new(FollowerApp::new(edge, followed, to_wire::topic_defaults(limits), mint));
        let mut listeners = Listeners::new(tls.clone());
        listeners.add(&app.edge, listener, routes::router(app.clone()), max);
        let children = Arc::new(Mutex::new(None));
        Ok(Follower { addr, app, tls, listeners, closing, socket: None, children })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves the probes and `/metrics` on an address of their own, where other clients cannot crowd them out.
    pub fn listen_probes(&mut self, listener: TcpListener) -> Result<SocketAddr, ServeError> {
        let addr = listener.local_addr().map_err(ServeError::Listener)?;
        let max = self.app.edge.settings.probe_connections_max;
        self.listeners.add(&self.app.edge, listener, routes::probes(self.app.clone()), max);
        Ok(addr)
    }

    /// Answers on the Unix socket of the CQRS loop, which has its name when this returns. As in [`Follower::start`],
    /// `listener` is a clone of one that the caller keeps.
    pub fn listen_socket(
        &mut self,
        mut place: SocketFile,
        listener: StdUnixListener,
    ) -> Result<(), ServeError> {
        listener.set_nonblocking(true).map_err(ServeError::Listener)?;
        let listener = UnixListener::from_std(listener).map_err(ServeError::Listener)?;
        let stopping = self.listeners.stopping();
        let task = tokio::spawn(socket::run(self.app.clone(), listener, stopping));
        place.open()?;
        self.socket = Some((place, task));
        Ok(())
    }

    /// Returns a handle for replacing tokens and certificate while the server runs. Child processes run on the leader:
    /// their settings count when this server leads.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.app.edge.clone(), self.tls.clone(), self.children.clone())
    }

    /// Stops to accept at once, and lets requests in progress go on until [`Follower::stop`]. A server that takes the
    /// lead calls this, starts [`crate::Server`] on another clone of the listener, and then stops the follower: slow
    /// readers of history so delay nobody.
    pub fn stop_accepting(&self) {
        self.listeners.stop();
    }

    /// Stops accepting, waits for the requests in progress (at most `grace_ms`), closes the connections. Returns the
    /// file of the Unix socket, which keeps its name as long as the value lives.
    pub async fn stop(self) -> Option<SocketFile> {
        let deadline = Instant::now() + Duration::from_millis(self.app.edge.settings.grace_ms);
        self.listeners.stop();
        let _ = self.closing.send(true);
        let all_left = async {
            self.app.edge.unauthenticated.all_left().await;
            self.app.edge.seats.all_left().await;
        };
        let all_left = timeout_at(deadline, all_left).await.is_ok();
        let all_answered = timeout_at(deadline, self.listeners.all_answered()).await.is_ok();
        if !(all_left && all_answered) {
            tracing::warn!("some connections were cut: their peers did not read or close in time");
        }
        let (place, task) = self.socket?;
        // Told to stop with the listeners above; it ends without waiting for its connections.
        if timeout_at(deadline, task).await.is_err() {
            tracing::warn!("the task of the Unix socket did not end in time");
        }
        Some(place)
    }
}
