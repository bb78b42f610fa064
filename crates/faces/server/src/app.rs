//! The state that all handlers of requests share, on a server that leads: the edges' own (`edge.rs`), the bus, the CQRS
//! loop and the store.

use std::sync::Arc;

use millrace_broker::BrokerHandle;
use millrace_bus::{BusError, Reply, Request};
use millrace_kernel::KernelHandle;
use millrace_model::Requester;
use millrace_store::{Store, StoreError};
use millrace_wire::http::TopicDefaults;

use crate::edge::SharedEdge;
use crate::http::durable_handlers::Figures;
use crate::observe::{HttpRequester, RequestParty, publish_trace};
use crate::refusal::Refusal;
use crate::to_wire;

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
}

impl App {
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

    /// Reads from the store on a thread that may block.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.edge.read(self.store.clone(), read).await
    }
}
