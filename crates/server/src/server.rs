//! The server's life: boot, accept, drain.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use millrace_bus::{BusLimits, Reply, Request};
use millrace_runtime::{Handle, Runtime, StartError, StopOutcome};
use millrace_store::Store;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::accept::Accept;
use crate::app::{App, SharedApp};
use crate::reload::Reloader;
use crate::settings::ServerSettings;
use crate::tls::{Certificate, TlsError};
use crate::{accept, routes};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    #[error("the listener has no address: {0}")]
    Listener(io::Error),
    #[error("the engine fell over a bug, please report it: restart the server, nothing confirmed is lost")]
    Fallen,
    /// Not everything in hand could be finished. Nothing that was confirmed is lost.
    #[error("the server could not finish what it had in hand within {grace_ms} ms")]
    CutShort { grace_ms: u64 },
    /// The store failed while the server ran: the reason was logged and `/readyz` said so.
    #[error("the store had failed: {0}")]
    StorageFailed(String),
}

/// A server that accepts. Dropping it without [`Server::stop`] is like a crash: nothing confirmed is lost.
pub struct Server {
    addr: SocketAddr,
    app: SharedApp,
    tls: Option<Arc<Certificate>>,
    runtime: Runtime,
    closing: watch::Sender<bool>,
    stop_accepting: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Server {
    /// Reads what the engine must know, then accepts. Returns once it does.
    pub async fn start(
        settings: ServerSettings,
        store: Arc<dyn Store>,
        limits: BusLimits,
        listener: TcpListener,
    ) -> Result<Server, ServeError> {
        let addr = listener.local_addr().map_err(ServeError::Listener)?;
        let tls = settings.tls.as_ref().map(Certificate::read).transpose()?.map(Arc::new);
        let (runtime_settings, boot_store) = (settings.runtime.clone(), store.clone());
        let boot = tokio::task::spawn_blocking(move || Runtime::start(runtime_settings, &boot_store, limits));
        let runtime = boot.await.map_err(|error| StartError::Thread(io::Error::other(error)))??;
        if settings.tokens.is_empty() {
            warn_of_idle_lists(&runtime.handle()).await;
        }
        let (closing, is_closing) = watch::channel(false);
        let app = Arc::new(App::new(settings, addr, runtime.handle(), store, is_closing));
        let (stop_accepting, stopped) = watch::channel(false);
        let router = routes::router(app.clone());
        let accept = Accept { router, tls: tls.clone(), settings: app.settings.clone() };
        let accepting = tokio::spawn(accept::run(listener, accept, stopped));
        Ok(Server { addr, app, tls, runtime, closing, stop_accepting, accepting })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// For embedders and other edges of the same process.
    pub fn handle(&self) -> Handle {
        self.runtime.handle()
    }

    /// For replacing tokens and certificate while it runs.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.app.clone(), self.tls.clone())
    }

    /// Serves until `shutdown` is ready, then stops. Also ends if the engine falls over a bug: a fresh process serves
    /// everything that was confirmed, this one can serve nothing.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        let handle = self.handle();
        tokio::select! {
            () = shutdown => self.stop().await,
            () = handle.ended() => Err(ServeError::Fallen),
        }
    }

    /// Stops accepting, lets the engine finish and give back what is leased, writes out what waits, says goodbye.
    pub async fn stop(self) -> Result<(), ServeError> {
        let grace_ms = self.app.settings.grace_ms;
        let deadline = Instant::now() + Duration::from_millis(grace_ms);
        let _ = self.stop_accepting.send(true);
        let stopped = self.runtime.stop(Duration::from_millis(grace_ms)).await;
        let _ = self.closing.send(true);
        // All permits back means that every connection has ended.
        let connections = u32::try_from(self.app.settings.connections_max).unwrap_or(u32::MAX);
        let all_closed = timeout_at(deadline, self.app.connections.acquire_many(connections)).await.is_ok();
        let all_answered = timeout_at(deadline, self.accepting).await.is_ok();
        let storage_failed = self.app.runtime.health().storage_failed().map(str::to_owned);
        // The writer may be inside a sync: never leave it behind half done.
        let runtime = self.runtime;
        let ended = timeout_at(
            deadline.max(Instant::now() + Duration::from_millis(END_MS)),
            tokio::task::spawn_blocking(move || runtime.end()),
        )
        .await
        .is_ok();
        match storage_failed {
            Some(reason) => Err(ServeError::StorageFailed(reason)),
            None if stopped == StopOutcome::Finished && all_closed && all_answered && ended => Ok(()),
            None => Err(ServeError::CutShort { grace_ms }),
        }
    }
}

/// Whoever wrote a list must not believe that it protects anything now.
async fn warn_of_idle_lists(handle: &Handle) {
    if let Ok(Reply::Stats(stats)) = handle.call(Request::Stats).await
        && stats.topics_with_access > 0
    {
        let topics = stats.topics_with_access;
        tracing::warn!(topics, "topics have access lists, but no tokens are configured: everything is open");
    }
}

/// The threads get this long to end even when the grace is used up.
const END_MS: u64 = 1000;
