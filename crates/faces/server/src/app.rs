//! The state that all handlers of requests share, on a server that leads: the edges' own (`edge.rs`), the bus, the CQRS
//! loop and the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_broker::{BatchWriter, BrokerHandle};
use millrace_bus::{BusError, Reply, Request};
use millrace_kernel::{KernelEnded, KernelHandle};
use millrace_model::Requester;
use millrace_store::{Store, StoreError};
use millrace_wire::ErrorCode;
use millrace_wire::http::TopicDefaults;

use crate::edge::SharedEdge;
use crate::http::durable_handlers::Figures;
use crate::jobs::Jobs;
use crate::latencies::LeftAt;
use crate::moved::Moved;
use crate::observe::{AuditKind, HttpRequester, RequestParty, TracedPublish, publish_trace, to_its_end};
use crate::refusal::{Refusal, overloaded};
use crate::ws::close::WsEnd;

/// How long the loop may take to say something about itself.
const LOOP_ANSWER_MS_MAX: u64 = 5000;

pub(crate) type SharedApp = Arc<App>;

pub(crate) struct App {
    pub(crate) edge: SharedEdge,
    /// The settings of topics that do not set their own.
    pub(crate) topic_defaults: TopicDefaults,
    pub(crate) broker: BrokerHandle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) kernel: KernelHandle,
    /// The figures of durable handlers, as last read from the store.
    pub(crate) handlers: Figures,
    /// Writes what people change on durable handlers, schedules and delayed events.
    pub(crate) actions: BatchWriter,
    /// Work over many dead letters.
    pub(crate) jobs: Jobs,
}

impl App {
    /// Sends a request to the engine. A refusal of the engine becomes an HTTP problem. Acts of which there is an audit
    /// are carried out and recorded also if the caller closes its connection meanwhile.
    pub(crate) async fn request(self: &Arc<App>, by: Requester, request: Request) -> Result<Reply, Refusal> {
        if !self.may_record(&request) {
            return self.request_here(by, request).await;
        }
        let app = self.clone();
        to_its_end(async move { app.request_here(by, request).await }).await
    }

    /// Publishes are many, and a task for each of them costs time: they have one only if they are audited.
    fn may_record(&self, request: &Request) -> bool {
        match request {
            Request::Publish(_) | Request::PublishBatch(_) => self.edge.audit_log.wants(AuditKind::Publish),
            other => !other.only_reads(),
        }
    }

    /// The same in the caller's task.
    async fn request_here(&self, by: Requester, request: Request) -> Result<Reply, Refusal> {
        let only_reads = request.only_reads();
        if let Some(doubt) = self.edge.doubt.reason().filter(|_| !only_reads) {
            return Err(Moved::to(None).refusal_because(&doubt));
        }
        let trace = publish_trace(&request);
        let writes_topic = matches!(request, Request::CreateTopic { .. } | Request::PatchTopic { .. });
        let traced = TracedPublish::of(self.edge.settings.tracer.as_ref(), &request);
        let arrived = Instant::now();
        let called = tokio::select! {
            biased;
            called = self.broker.call(by, request) => called,
            () = self.edge.doubt.begun(), if !only_reads => return Err(self.outcome_unknown()),
        };
        if let Ok(reply) = &called {
            self.answered(reply, traced.as_deref(), arrived, LeftAt::now(&self.edge.clock));
        }
        match called {
            Ok(Reply::Refused(error)) => Err(self.refusal(&error)),
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
            Err(_) => Err(self.refusal(&BusError::ShuttingDown)),
        }
    }

    /// Counts how long the answer to a request took, and reports it to the collector of traces.
    pub(crate) fn answered(
        &self,
        reply: &Reply,
        traced: Option<&TracedPublish>,
        arrived: Instant,
        left: LeftAt,
    ) {
        self.edge.latencies.answered(reply, arrived, left);
        if let Some(tracer) = &self.edge.settings.tracer
            && let Some(traced) = traced
        {
            tracer.offer(traced.span(reply, arrived, left));
        }
    }

    /// The answer to a request that waits for its commit while the lead of this server is in doubt: the client must not
    /// wait for as long as the engine is away.
    fn outcome_unknown(&self) -> Refusal {
        let doubt = self.edge.doubt.reason().unwrap_or_default();
        let detail = format!(
            "{doubt}; whether this request was carried out is not known: send it again, a publish under its id"
        );
        Refusal::new(ErrorCode::StorageFailed, detail)
    }

    /// Asks the CQRS loop something about itself. A loop that stands still must not hold up everybody who asks how it is.
    pub(crate) async fn ask_loop<T>(
        &self,
        asked: impl Future<Output = Result<T, KernelEnded>>,
    ) -> Result<T, Refusal> {
        match tokio::time::timeout(Duration::from_millis(LOOP_ANSWER_MS_MAX), asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(KernelEnded)) => Err(self.refusal(&BusError::ShuttingDown)),
            Err(_) => {
                let detail =
                    format!("the CQRS loop has not answered within {LOOP_ANSWER_MS_MAX} ms: try again");
                Err(overloaded(detail))
            }
        }
    }

    /// Where to go if a request was refused because this server has lost the lead: nothing of it was written.
    pub(crate) fn moved(&self, error: &BusError) -> Option<Moved> {
        let is_of_store = matches!(error, BusError::StorageFailed(_) | BusError::ShuttingDown);
        (is_of_store && self.broker.health().is_deposed()).then(|| Moved::to(self.edge.leader()))
    }

    /// Makes the response for a refusal of the engine.
    pub(crate) fn refusal(&self, error: &BusError) -> Refusal {
        self.moved(error).map_or_else(|| Refusal::of(error), |moved| moved.refusal())
    }

    /// How WebSockets end with this server: it stops, or another one leads.
    pub(crate) fn stopping_end(&self) -> WsEnd {
        self.moved(&BusError::ShuttingDown).map_or(WsEnd::Stopping, WsEnd::Moved)
    }

    /// Reads from the store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.edge.read(self.store.clone(), read).await
    }
}
