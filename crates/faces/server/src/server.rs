//! The lifecycle of the server: start, accept, stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use millrace_broker::{Broker, BrokerHandle, StartError, StopOutcome};
use millrace_bus::{BusLimits, Reply, Request};
use millrace_child::Children;
use millrace_kernel::{
    ChangeError, HostRequest, KernelEnded, KernelError, KernelHandle, NotReloaded, SocketFile,
    SocketPathError,
};
use millrace_model::Requester;
use millrace_store::{Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use crate::accept::Listeners;
use crate::access::{Tokens, warn_of_expired};
use crate::app::{App, SharedApp};
use crate::edge::Edge;
use crate::follower::FollowedStore;
use crate::http::durable_handlers::Figures;
use crate::jobs::{self, Jobs};
use crate::lead_doubt::LeadDoubter;
use crate::observe::{AuditKind, AuditLog};
use crate::reload::Reloader;
use crate::settings::ServerSettings;
use crate::tls::{Certificate, TlsError};
use crate::to_wire;
use crate::{kernel, observe, routes};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store cannot be read; the error of the store says why.
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Place(#[from] SocketPathError),
    /// A child process could not be started; the error names it.
    #[error(transparent)]
    Capability(millrace_child::ReloadError),
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    #[error("the listener has no address: {0}")]
    Listener(io::Error),
    #[error("the engine fell over a bug, please report it: restart the server, nothing confirmed is lost")]
    Fallen,
    /// Some work in progress could not be finished. Nothing that was confirmed is lost.
    #[error("the server could not finish what it had in hand within {after_ms} ms")]
    CutShort { after_ms: u64 },
    /// The grace was over before all commits were through. Requests that waited for them got no answer.
    #[error(
        "the server could not write what it had in hand within {after_ms} ms: {batches} batches wait for {waits_for}. Nobody was \
         told that they were written, and nothing confirmed is lost"
    )]
    Unwritten { after_ms: u64, batches: usize, waits_for: String },
    /// The store's files were moved or removed while the server ran. Every request that waited was told.
    #[error("the files of the store have lost their names, so the server has stopped: {0}")]
    LostNames(String),
    /// Another server has taken the lead of the shared store. Every request that waited was told where to go, and
    /// nothing confirmed is lost: this process may follow from now on.
    #[error("this server has lost the lead: {0}")]
    Deposed(String),
    /// The store failed while the server ran. Every request that waited was told, and nothing confirmed is lost.
    #[error(
        "the store failed and this process can write nothing more: {0}; everything confirmed is on disk: look at the \
         disk and start the server again (a supervisor may restart it)"
    )]
    StorageFailed(String),
}

/// A running server. Dropping it without [`Server::stop`] is like a crash: nothing confirmed is lost.
pub struct Server {
    addr: SocketAddr,
    app: SharedApp,
    tls: Option<Arc<Certificate>>,
    broker: Broker,
    closing: watch::Sender<bool>,
    listeners: Listeners,
    /// Requests of the loop's own commands: `Syscall.Shutdown`, `Syscall.Reload`.
    asked: mpsc::Receiver<HostRequest>,
    on_reload: Option<OnReload>,
    socket: Option<SocketFile>,
    children: Arc<tokio::sync::Mutex<Option<Children>>>,
}

/// See [`Server::deposer`].
#[derive(Clone, Debug)]
pub struct Deposer(BrokerHandle);

impl Deposer {
    /// Ends [`Server::run_until`] with [`ServeError::Deposed`]; `reason` says who leads. Has no effect on a server that
    /// has stopped.
    pub fn depose(&self, reason: String) {
        self.0.depose(reason);
    }
}

/// Reads the configuration again. Returns a text about what changed, or why nothing did.
type OnReload = Box<dyn Fn() -> BoxFuture<'static, Result<String, NotReloaded>> + Send>;

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Server {
    /// Loads the engine's state from the store, then starts to accept. Returns once the server accepts.
    pub async fn start(
        settings: ServerSettings,
        store: Arc<dyn Store>,
        mut limits: BusLimits,
        listener: TcpListener,
    ) -> Result<Server, ServeError> {
        let addr = listener.local_addr().map_err(ServeError::Listener)?;
        let tls = settings.tls.as_ref().map(Certificate::read).transpose()?.map(Arc::new);
        limits.note_acks = settings.audit.has(AuditKind::Ack);
        limits.note_redeliveries = settings.audit.has(AuditKind::Redelivery);
        limits.note_traced_deliveries = settings.tracer.is_some();
        let topic_defaults = to_wire::topic_defaults(&limits);
        let (broker_settings, boot_store) = (settings.broker.clone(), store.clone());
        let boot = tokio::task::spawn_blocking(move || Broker::start(broker_settings, &boot_store, limits));
        let broker = boot.await.map_err(|error| StartError::Thread(io::Error::other(error)))??;
        let handle = broker.handle().without_inline_commits();
        if settings.tokens.is_empty() {
            warn_of_idle_lists(&handle).await;
        }
        observe::make_topics(&handle).await;
        warn_of_expired(&settings.tokens, handle.clock());
        let tokens = Arc::new(Tokens::new(&settings.tokens, settings.token_rate, handle.clock().clone()));
        let audit_target = kernel::AuditTarget::default();
        let (kernel, asked) = kernel::start(&settings, &store, &handle, &tokens, &audit_target).await?;
        let children = Arc::new(tokio::sync::Mutex::new(Some(kernel::children(&settings, &kernel).await?)));
        let (closing, is_closing) = watch::channel(false);
        let (audit_log, audit_writer) = AuditLog::new(settings.audit, settings.audit_records_max);
        let edge = Arc::new(Edge::new(settings, addr, handle.clock().clone(), tokens, audit_log, is_closing));
        let actions = handle.batch_writer();
        let (broker_handle, handlers) = (broker.handle(), Figures::default());
        let app = Arc::new(App {
            edge,
            topic_defaults,
            broker: broker_handle,
            store,
            kernel,
            handlers,
            actions,
            jobs: Jobs::default(),
        });
        observe::start(&app, audit_writer);
        // Before timers fire: their refusals are audited, too.
        let _ = audit_target.set(Arc::downgrade(&app));
        jobs::resume(&app).await;
        app.kernel.begin().await.map_err(|_| ServeError::Fallen)?;
        let mut listeners = Listeners::new(tls.clone());
        let router = routes::router(app.clone());
        listeners.add(&app.edge, listener, router, app.edge.settings.http_connections_max);
        let (on_reload, socket) = (None, None);
        Ok(Server { addr, app, tls, broker, closing, listeners, asked, on_reload, socket, children })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A handle to the bus, for embedders and other edges of the same process.
    pub fn handle(&self) -> BrokerHandle {
        self.broker.handle().without_inline_commits()
    }

    /// Returns a function that counts the open WebSockets, also after [`Server::run_until`] has taken the server.
    pub fn connections(&self) -> impl Fn() -> usize + Send + 'static {
        let app = Arc::downgrade(&self.app);
        move || app.upgrade().map_or(0, |app| app.edge.seats.taken() + app.edge.unauthenticated.taken())
    }

    /// The CQRS loop, for adding capabilities to it.
    pub fn kernel(&self) -> &KernelHandle {
        &self.app.kernel
    }

    /// Serves the loop on a Unix socket, which has its name when this returns. The socket is removed with the server.
    pub async fn listen_socket(
        &mut self,
        mut place: SocketFile,
        listener: std::os::unix::net::UnixListener,
    ) -> Result<(), ServeError> {
        let ended = |ended: KernelEnded| KernelError::from(ChangeError::from(ended));
        self.app.kernel.listen(listener).await.map_err(ended)?;
        place.open()?;
        self.socket = Some(place);
        Ok(())
    }

    /// Serves the probes and `/metrics` on an address of their own, where other clients cannot crowd them out.
    pub fn listen_probes(&mut self, listener: TcpListener) -> Result<SocketAddr, ServeError> {
        let addr = listener.local_addr().map_err(ServeError::Listener)?;
        let max = self.app.edge.settings.probe_connections_max;
        self.listeners.add(&self.app.edge, listener, routes::probes(self.app.clone()), max);
        Ok(addr)
    }

    /// Sets what `Syscall.Reload` does. Without it the command is refused.
    pub fn on_reload(
        &mut self,
        reload: impl Fn() -> BoxFuture<'static, Result<String, NotReloaded>> + Send + 'static,
    ) {
        self.on_reload = Some(Box::new(reload));
    }

    /// Returns a handle for replacing tokens, certificate and child processes while the server runs.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.app.edge.clone(), self.tls.clone(), self.children.clone())
    }

    /// Tells the server that it leads a store that several servers share: pages then carry a position, `/readyz` and
    /// `/metrics` say how the copy is doing, and after [`ServeError::Deposed`] clients are told who leads.
    pub fn share_store(&self, copy: Arc<dyn FollowedStore>) {
        self.app.edge.share_store(copy);
    }

    /// Returns a handle that tells this server that another one leads: a server without traffic commits nothing, so its
    /// store has no occasion to say it.
    pub fn deposer(&self) -> Deposer {
        Deposer(self.handle())
    }

    /// Returns a handle that tells this server that it may have been replaced and cannot know it, because it cannot reach
    /// the engine of the shared store. Until the doubt is over, nothing is delivered and clients are sent to look for
    /// the leader.
    pub fn lead_doubter(&self) -> LeadDoubter {
        LeadDoubter::new(self.app.edge.clone(), self.handle())
    }

    /// Serves until `shutdown` is ready or `Syscall.Shutdown` arrives, then stops. Also ends if the engine fails by a
    /// bug, if the store has failed for good (this process can write nothing more, and a new one serves everything that
    /// was confirmed), or if another server has taken the lead of the store ([`ServeError::Deposed`]).
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let (handle, kernel) = (self.handle(), self.app.kernel.clone());
        tokio::select! {
            () = shutdown => self.stop().await,
            () = asked_to_stop(&mut self.asked, self.on_reload.as_ref()) => self.stop().await,
            () = handle.health().failure_told() => self.stop().await,
            () = handle.ended() => Err(ServeError::Fallen),
            () = kernel.ended() => Err(ServeError::Fallen),
        }
    }

    /// Stops accepting, lets the engine finish and release its leases, writes out what is queued, closes the
    /// connections.
    pub async fn stop(self) -> Result<(), ServeError> {
        let grace_ms = self.app.edge.settings.grace_ms;
        let begun = Instant::now();
        let deadline = begun + Duration::from_millis(grace_ms);
        self.listeners.stop();
        if self.app.broker.health().is_deposed() {
            // Nothing more can be written, and another server serves already: connections go there at once, whatever
            // the loop's capabilities still have to finish.
            let _ = self.closing.send(true);
        }
        // The loop stops first: its capabilities still need the bus.
        let kernel_stopped =
            timeout(kernel::patience(grace_ms), self.app.kernel.stop(kernel::grace(grace_ms))).await.is_ok();
        drop(self.socket);
        // A capability that never answers uses up the loop's part of the grace. The bus must still be able to write
        // what it has, on a slow disk too.
        let kernel_used_its_part = begun.elapsed() >= kernel::grace(grace_ms);
        let extended = Instant::now() + Duration::from_millis(FLUSH_MS);
        let deadline = if kernel_used_its_part { deadline.max(extended) } else { deadline };
        let stopped = self.broker.stop(deadline.saturating_duration_since(Instant::now())).await;
        let _ = self.closing.send(true);
        let all_left = async {
            self.app.edge.unauthenticated.all_left().await;
            self.app.edge.seats.all_left().await;
        };
        let all_closed = timeout_at(deadline, all_left).await.is_ok();
        let all_answered = timeout_at(deadline, self.listeners.all_answered()).await.is_ok();
        let health = self.app.broker.health();
        if let StopOutcome::Unwritten { batches } = stopped
            && health.lost_names().is_none()
        {
            // The threads that wait for the disk are left behind: exiting now is as safe as being killed, which the
            // store is built to survive.
            let waits_for = health.stall().map_or_else(|| "the store".to_owned(), |stall| stall.waits_for);
            return Err(ServeError::Unwritten { after_ms: millis(begun.elapsed()), batches, waits_for });
        }
        // The writer may be in the middle of a sync: wait for it.
        let broker = self.broker;
        let mut ending = tokio::task::spawn_blocking(move || broker.end());
        let until = deadline.max(Instant::now() + Duration::from_millis(END_MS));
        let ended = timeout_at(until, &mut ending).await.is_ok();
        if !ended && health.lost_names().is_some() {
            // The store is saving its data, because its files have lost their names. A thread that panicked has logged
            // it.
            let _ = ending.await;
        }
        match health.storage_failed().map(str::to_owned) {
            Some(reason) if health.lost_names().is_some() => Err(ServeError::LostNames(reason)),
            Some(reason) if health.is_deposed() => Err(ServeError::Deposed(reason)),
            Some(reason) => Err(ServeError::StorageFailed(reason)),
            None if kernel_stopped
                && stopped == StopOutcome::Finished
                && all_closed
                && all_answered
                && ended =>
            {
                Ok(())
            }
            None => Err(ServeError::CutShort { after_ms: millis(begun.elapsed()) }),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns when the loop is told to stop the server. Runs reloads until then.
async fn asked_to_stop(asked: &mut mpsc::Receiver<HostRequest>, on_reload: Option<&OnReload>) {
    while let Some(asked) = asked.recv().await {
        match (asked, on_reload) {
            (HostRequest::Shutdown, _) => {
                tracing::info!("stopping: Syscall.Shutdown");
                return;
            }
            // The reload is carried out even if its sender has gone.
            (HostRequest::Reload { done }, Some(reload)) => drop(done.send(reload().await)),
            (HostRequest::Reload { done }, None) => {
                drop(done.send(Err("this server has no configuration to read again".into())));
            }
        }
    }
    // The loop has ended, which `run_until` notices by other means.
    std::future::pending::<()>().await;
}

/// Warns at the start if topics have access lists and no tokens are configured: such lists protect nothing.
async fn warn_of_idle_lists(handle: &BrokerHandle) {
    if let Ok(Reply::Stats(stats)) = handle.call(Requester::Trusted, Request::Stats).await
        && stats.topics_with_access > 0
    {
        let topics = stats.topics_with_access;
        tracing::warn!(topics, "topics have access lists, but no tokens are configured: everything is open");
    }
}

/// How long the bus has to write what it has and to close connections, even if the loop has used up the grace.
const FLUSH_MS: u64 = 5000;
/// How long the threads have to end after that.
const END_MS: u64 = 1000;
