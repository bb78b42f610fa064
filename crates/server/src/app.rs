//! What every handler of a request shares.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_bus::{BusError, By, Reply, Request};
use millrace_runtime::Handle;
use millrace_store::{Store, StoreError};
use millrace_wire::ErrorCode;
use tokio::sync::{Semaphore, watch};

use crate::access::{Audit, Tokens};
use crate::refusal::Refusal;
use crate::settings::ServerSettings;
use crate::to_wire;

pub(crate) type SharedApp = Arc<App>;

pub(crate) struct App {
    pub(crate) settings: ServerSettings,
    pub(crate) listen: SocketAddr,
    pub(crate) runtime: Handle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tokens: Tokens,
    pub(crate) audit: Audit,
    /// Changes when tokens were replaced, for connections to look whether theirs still counts.
    pub(crate) reloads: watch::Sender<u64>,
    /// One permit per WebSocket.
    pub(crate) connections: Arc<Semaphore>,
    /// One permit per KiB of a body that is being read.
    pub(crate) bodies: Semaphore,
    reads: Semaphore,
    /// One permit per KiB of a page that is being made or waits for its reader.
    pub(crate) pages: Arc<Semaphore>,
    /// True once connections are to finish what they have and close.
    pub(crate) closing: watch::Receiver<bool>,
}

/// Bodies and pages are accounted for in units of this size.
pub(crate) const BODY_UNIT: usize = 1024;

impl App {
    pub(crate) fn new(
        settings: ServerSettings,
        listen: SocketAddr,
        runtime: Handle,
        store: Arc<dyn Store>,
        closing: watch::Receiver<bool>,
    ) -> App {
        App {
            connections: Arc::new(Semaphore::new(settings.connections_max)),
            bodies: Semaphore::new(settings.bodies_bytes_max.div_ceil(BODY_UNIT)),
            reads: Semaphore::new(settings.reads_max),
            pages: Arc::new(Semaphore::new(settings.pages_bytes_max.div_ceil(BODY_UNIT))),
            tokens: Tokens::new(&settings.tokens, settings.token_rate),
            audit: Audit::default(),
            reloads: watch::Sender::new(0),
            settings,
            listen,
            runtime,
            store,
            closing,
        }
    }

    /// Asks the engine; a refusal becomes a problem.
    pub(crate) async fn ask(&self, by: By, request: Request) -> Result<Reply, Refusal> {
        match self.runtime.call_as(by, request).await {
            Ok(Reply::Refused(error)) => Err(to_wire::problem(&error).into()),
            Ok(reply) => Ok(reply),
            Err(_) => Err(to_wire::problem(&BusError::ShuttingDown).into()),
        }
    }

    /// Reads from the store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _turn = self.reads.acquire().await;
        let store = self.store.clone();
        let failed = |reason: String| Refusal::new(ErrorCode::StorageFailed, reason);
        match tokio::task::spawn_blocking(move || read(&*store)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("the store could not be read".to_owned())),
        }
    }
}
