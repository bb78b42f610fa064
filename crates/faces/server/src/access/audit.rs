//! Records refusals: counts them, writes a structured log line for each within a rate, and adds a record to
//! `system.bus.audit` if the audit is on and the refusal is about access.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use millrace_model::{TopicName, TraceId};
use millrace_wire::ErrorCode;
use millrace_wire::http::AuditDoc;

use crate::access::{Meter, Peer, Rate};
use crate::edge::{Edge, SharedEdge};
use crate::observe::{AuditKind, HttpRequester, Refusals};

/// Log lines per second, and at once. Lines above this rate are left out; the next line says how many.
const LINES: Rate = Rate { per_second: 10, burst: 100 };
/// Longest part of a request's path that is logged: callers choose that text.
const WHAT_CHARS_MAX: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) refusals: Refusals,
    /// Refusals about access have a rate of their own: a client that sends nonsense must not hide an intruder.
    access: LogLines,
    other: LogLines,
}

/// Writes log lines within a rate, however many there are.
#[derive(Debug)]
pub(crate) struct LogLines {
    meter: Meter,
    suppressed: AtomicU64,
}

impl Default for LogLines {
    fn default() -> LogLines {
        LogLines { meter: Meter::new(LINES), suppressed: AtomicU64::new(0) }
    }
}

impl LogLines {
    /// Returns how many lines were left out before this one, or `None` if this one must be left out as well.
    pub(crate) fn next(&self) -> Option<u64> {
        if self.meter.spend(1).is_err() {
            self.suppressed.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Relaxed))
    }
}

/// A request or frame that was refused. Never contains a secret.
pub(crate) struct Refused<'a> {
    pub(crate) code: ErrorCode,
    pub(crate) agent: Option<&'a str>,
    pub(crate) peer: Option<SocketAddr>,
    /// The type of the frame, or method and path of the request.
    pub(crate) what: &'a dyn fmt::Display,
    pub(crate) why: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) trace: Option<&'a TraceId>,
}

impl Edge {
    pub(crate) fn refused(&self, refused: &Refused<'_>) {
        let code = refused.code;
        self.audit.refusals.count(code);
        let what = || refused.what.to_string().chars().take(WHAT_CHARS_MAX).collect::<String>();
        let peer = refused.peer.map(tracing::field::display);
        let trace_id = refused.trace.map(TraceId::as_str);
        if !is_access(code) {
            if let Some(suppressed) = self.audit.other.next() {
                let (what, why) = (what(), refused.why);
                let (code, agent) = (code.as_str(), refused.agent);
                tracing::info!(target: "millrace::refusals", code, agent, peer, ?what, ?why, trace_id, suppressed, "refused");
            }
            return;
        }
        if let Some(suppressed) = self.audit.access.next() {
            let (what, why) = (what(), refused.why);
            let (code, agent) = (code.as_str(), refused.agent);
            tracing::warn!(target: "millrace::audit", code, agent, peer, ?what, ?why, trace_id, suppressed, "refused");
        }
        if self.audit_log.wants(AuditKind::Refusals) {
            let owned = |text: &str| text.to_owned();
            let doc = AuditDoc {
                kind: "refused".to_owned(),
                code: Some(code.as_str().to_owned()),
                agent: refused.agent.map(owned),
                peer: refused.peer.map(|peer| peer.to_string()),
                what: Some(what()),
                why: Some(refused.why.to_owned()),
                namespace: refused.namespace.map(owned),
                topic: refused.topic.map(owned),
                trace_id: trace_id.map(owned),
                ..AuditDoc::default()
            };
            self.audit_log.put(AuditKind::Refusals, doc);
        }
    }
}

/// Whether a refusal is about access: such refusals are logged as warnings and are part of the audit.
pub(crate) fn is_access(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unauthorized | ErrorCode::Forbidden | ErrorCode::RateLimited)
}

/// The code and reason of a refusal, which the response carries to [`watch`] as an extension.
#[derive(Clone, Debug)]
pub(crate) struct Reason {
    pub(crate) code: ErrorCode,
    pub(crate) why: Box<str>,
}

/// Middleware that logs requests and records refusals. The outermost layer but for `drain_body.rs`, so every refusal
/// over HTTP passes through it.
pub(crate) async fn watch(State(edge): State<SharedEdge>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let connection = request.extensions().get::<Peer>();
    let peer = connection.map(|peer| peer.addr);
    let place = connection.map(|peer| peer.place.clone());
    let http_requester = Arc::new(HttpRequester::of(peer, place, request.headers()));
    let begun = Instant::now();
    let response = http_requester.clone().serve(next.run(request)).await;
    let trace = http_requester.trace.as_ref();
    if let Some(reason) = response.extensions().get::<Reason>() {
        let topic = topic_of(&path);
        let what = &format_args!("{method} {path}");
        let (code, why, agent) = (reason.code, &*reason.why, http_requester.agent());
        edge.refused(&Refused { code, agent, peer, what, why, namespace: None, topic, trace });
    }
    tracing::debug!(
        target: "millrace::http",
        %method,
        path,
        status = response.status().as_u16(),
        ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        agent = http_requester.agent(),
        peer = peer.map(tracing::field::display),
        trace_id = trace.map(TraceId::as_str),
        "request"
    );
    response
}

/// The topic in a path of the HTTP interface. Legal topic names never need percent-encoding, so an encoded one is
/// ignored.
fn topic_of(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/topics/").or_else(|| path.strip_prefix("/dead-letters/"))?;
    rest.split('/').next().filter(|topic| TopicName::new(topic).is_ok())
}
