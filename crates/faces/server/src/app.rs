//! The state that all handlers of requests share.

use std::net::SocketAddr;
use std::sync::Arc;

use millrace_broker::BrokerHandle;
use millrace_bus::{BusError, Reply, Request};
use millrace_kernel::KernelHandle;
use millrace_model::Requester;
use millrace_store::{Store, StoreError};
use millrace_wire::ErrorCode;
use millrace_wire::http::TopicDefaults;
use tokio::sync::{Semaphore, watch};

use crate::access::{Audit, Tokens};
use crate::fairness::{Evictions, Frames, Room, SeatRule, Seats, share_of};
use crate::http::durable_handlers::Figures;
use crate::observe::{AuditLog, HttpRequester, RequestParty, publish_trace};
use crate::refusal::Refusal;
use crate::settings::ServerSettings;
use crate::to_wire;

pub(crate) type SharedApp = Arc<App>;

pub(crate) struct App {
    pub(crate) settings: ServerSettings,
    /// The settings of topics that do not set their own.
    pub(crate) topic_defaults: TopicDefaults,
    pub(crate) listen: SocketAddr,
    pub(crate) broker: BrokerHandle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) kernel: KernelHandle,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) audit: Audit,
    /// Changes when tokens were replaced, so that connections check whether theirs is still valid.
    pub(crate) reloads: watch::Sender<u64>,
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
    /// The figures of durable handlers, as last read from the store.
    pub(crate) handlers: Figures,
    reads: Semaphore,
    /// Memory for pages that are being made or wait to be read by the client.
    pub(crate) pages: Arc<Room>,
    /// True once connections are to finish their work and close.
    pub(crate) closing: watch::Receiver<bool>,
}

/// The parts of the server that exist before its edges: bus, CQRS loop, store.
pub(crate) struct Engines {
    pub(crate) broker: BrokerHandle,
    pub(crate) kernel: KernelHandle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) topic_defaults: TopicDefaults,
}

impl App {
    pub(crate) fn new(
        settings: ServerSettings,
        listen: SocketAddr,
        engines: Engines,
        tokens: Arc<Tokens>,
        audit_log: AuditLog,
        closing: watch::Receiver<bool>,
    ) -> App {
        let Engines { broker, kernel, store, topic_defaults } = engines;
        let evictions = Arc::new(Evictions::default());
        let room = |bytes_max| Room::new(bytes_max, share_of(bytes_max, settings.caller_share_percent));
        let seats = |max, rule| Seats::new(max, rule, evictions.clone());
        App {
            seats: seats(settings.connections_max, SeatRule::FairShare),
            unauthenticated: seats(settings.unauthenticated_connections_max, SeatRule::Oldest),
            frames: Frames::new(settings.frames_bytes_max, evictions.clone()),
            bodies: room(settings.bodies_bytes_max),
            pages: room(settings.pages_bytes_max),
            handlers: Figures::default(),
            reads: Semaphore::new(settings.reads_max),
            evictions: evictions.clone(),
            kernel,
            tokens,
            audit: Audit::default(),
            reloads: watch::Sender::new(0),
            audit_log,
            settings,
            topic_defaults,
            listen,
            broker,
            store,
            closing,
        }
    }

    /// Sends a request to the engine. A refusal of the engine becomes an HTTP problem.
    pub(crate) async fn request(&self, by: Requester, request: Request) -> Result<Reply, Refusal> {
        let trace = publish_trace(&request);
        let writes_topic = matches!(request, Request::CreateTopic { .. } | Request::PatchTopic { .. });
        match self.broker.call(by, request).await {
            Ok(Reply::Refused(error)) => Err(Refusal::of(&error)),
            Ok(reply) => {
                let http_requester = HttpRequester::current();
                let http_requester = http_requester.as_deref();
                let by = RequestParty {
                    agent: http_requester.and_then(HttpRequester::agent),
                    peer: http_requester.and_then(|http_requester| http_requester.peer),
                    trace: trace.as_ref().or_else(|| http_requester?.trace.as_ref()),
                };
                match &reply {
                    Reply::Topic { created, topic } if writes_topic => {
                        self.topic_written(*created, &topic.topic, &by);
                    }
                    reply => self.done(reply, &by),
                }
                Ok(reply)
            }
            Err(_) => Err(to_wire::problem(&BusError::ShuttingDown).into()),
        }
    }

    /// Reads from the store on a thread that may block, at most `reads_max` reads at a time.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _turn = HttpRequester::wait_for(self.reads.acquire()).await?;
        let store = self.store.clone();
        let failed = |reason: String| Refusal::new(ErrorCode::StorageFailed, reason);
        match tokio::task::spawn_blocking(move || read(&*store)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("the store could not be read".to_owned())),
        }
    }
}
