//! The sender of the HTTP request that the current task serves, for logs, audit and accounting. A task-local value, so
//! that no handler has to pass it on.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, StatusCode};
use millrace_bus::Request;
use millrace_model::{EventBody, Headers, NewEvent, TRACEPARENT, TraceId};
use millrace_wire::ErrorCode;

use crate::fairness::{CallerKey, ConnectionPlace};
use crate::refusal::Refusal;

/// Belongs to `traceparent`, and means nothing without it.
const TRACESTATE: &str = "tracestate";
/// Longest value of either header that is copied into events; the standard asks for 512 bytes of `tracestate`.
const VALUE_BYTES_MAX: usize = 512;

tokio::task_local! {
    static HTTP_REQUESTER: Arc<HttpRequester>;
}

#[derive(Debug, Default)]
pub(crate) struct HttpRequester {
    pub(crate) peer: Option<SocketAddr>,
    /// Set by the gate (`access/gate.rs`).
    pub(crate) agent: OnceLock<String>,
    /// The connection that the request came over.
    pub(crate) place: Option<Arc<ConnectionPlace>>,
    /// The key that the request's memory is accounted under; set by the gate.
    pub(crate) caller: OnceLock<CallerKey>,
    pub(crate) trace: Option<TraceId>,
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl HttpRequester {
    pub(crate) fn of(
        peer: Option<SocketAddr>,
        place: Option<Arc<ConnectionPlace>>,
        headers: &HeaderMap,
    ) -> HttpRequester {
        let text = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.filter(|text| (1..=VALUE_BYTES_MAX).contains(&text.len())).map(str::to_owned)
        };
        let traceparent = text(TRACEPARENT);
        HttpRequester {
            peer,
            agent: OnceLock::new(),
            place,
            caller: OnceLock::new(),
            trace: traceparent.as_deref().and_then(TraceId::parse),
            tracestate: text(TRACESTATE),
            traceparent,
        }
    }

    /// The sender of what the server does by itself for an agent.
    pub(crate) fn for_agent(agent: Option<&str>) -> HttpRequester {
        let agent = agent.map_or_else(OnceLock::new, |agent| OnceLock::from(agent.to_owned()));
        HttpRequester { agent, ..HttpRequester::default() }
    }

    pub(crate) async fn serve<T>(self: Arc<HttpRequester>, serve: impl Future<Output = T>) -> T {
        HTTP_REQUESTER.scope(self, serve).await
    }

    /// Returns `None` outside of an HTTP request.
    pub(crate) fn current() -> Option<Arc<HttpRequester>> {
        HTTP_REQUESTER.try_with(Arc::clone).ok()
    }

    pub(crate) fn agent(&self) -> Option<&str> {
        self.agent.get().map(String::as_str)
    }

    /// Waits for something the server is short of. Refuses the request if others need the connection's place meanwhile.
    pub(crate) async fn wait_for<T>(awaited: impl Future<Output = T>) -> Result<T, Refusal> {
        match HttpRequester::current().and_then(|http_requester| http_requester.place.clone()) {
            Some(place) => place.wait_for(awaited).await.map_err(Refusal::from),
            None => Ok(awaited.await),
        }
    }

    /// Adds the request's trace headers to events that have none of their own.
    pub(crate) fn stamp(request: &mut Request) {
        let Some(http_requester) = HttpRequester::current() else { return };
        let Some(traceparent) = http_requester.traceparent.as_deref() else { return };
        match request {
            Request::Publish(publish) => {
                stamp(&mut publish.event, traceparent, http_requester.tracestate.as_deref());
            }
            Request::PublishBatch(batch) => {
                for event in &mut batch.events {
                    stamp(event, traceparent, http_requester.tracestate.as_deref());
                }
            }
            _ => {}
        }
    }
}

/// Runs `work` to its end, also if the caller closes its connection meanwhile: the request's own task is dropped then, and
/// with it everything that was to follow a change, such as its record in the audit.
pub(crate) async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let http_requester = HttpRequester::current().unwrap_or_default();
    let ended = tokio::spawn(http_requester.serve(work)).await;
    ended.unwrap_or_else(|_| {
        let refusal = Refusal::new(ErrorCode::StorageFailed, "the server failed to answer");
        Err(refusal.status(StatusCode::INTERNAL_SERVER_ERROR))
    })
}

fn stamp(event: &mut NewEvent, traceparent: &str, tracestate: Option<&str>) {
    let has = |headers: Option<&Headers>, name| headers.is_some_and(|headers| headers.get(name).is_some());
    let own = event.body.headers.as_ref();
    if has(own, TRACEPARENT) {
        return;
    }
    let mut headers = Headers::with(own, TRACEPARENT, traceparent);
    if let Some(tracestate) = tracestate.filter(|_| !has(own, TRACESTATE)) {
        headers = Headers::with(Some(&headers), TRACESTATE, tracestate);
    }
    event.body = Arc::new(EventBody { headers: Some(headers), ..EventBody::clone(&event.body) });
}
