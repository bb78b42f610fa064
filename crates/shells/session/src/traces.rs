//! The span of a handler's run (`process T`), and its context in the events that the run emits.

use std::collections::BTreeMap;

use millrace_claims::{HandlerRun, OutEvent, RunError};
use millrace_model::{Headers, SessionId, TRACEPARENT};
use millrace_telemetry::{Span, SpanKind, TRACESTATE, TraceContext, Tracer, conventions as name, now_nanos};

/// The headers by which events continue the trace of the run that emitted them.
#[derive(Clone, Debug)]
pub(crate) struct TraceHeaders {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceHeaders {
    /// A context that the handler has set itself is not touched.
    pub(crate) fn add_to(&self, headers: &mut BTreeMap<String, String>) {
        if headers.contains_key(TRACEPARENT) {
            return;
        }
        headers.insert(TRACEPARENT.to_owned(), self.traceparent.clone());
        if let Some(tracestate) = &self.tracestate {
            headers.entry(TRACESTATE.to_owned()).or_insert_with(|| tracestate.clone());
        }
    }
}

/// A run under way whose event is traced.
#[derive(Debug)]
pub(crate) struct RunTrace<'a> {
    tracer: &'a Tracer,
    event: TraceContext,
    own: TraceContext,
    began_ns: u64,
}

impl<'a> RunTrace<'a> {
    pub(crate) fn begin(tracer: Option<&'a Tracer>, run: &HandlerRun) -> Option<RunTrace<'a>> {
        let tracer = tracer?;
        let event = TraceContext::of(run.event.body.headers.as_ref())?;
        Some(RunTrace { tracer, event, own: event.child(), began_ns: now_nanos() })
    }

    pub(crate) fn headers(&self, run: &HandlerRun) -> TraceHeaders {
        let headers = run.event.body.headers.as_ref().map(Headers::to_map).unwrap_or_default();
        TraceHeaders { traceparent: self.own.traceparent(), tracestate: headers.get(TRACESTATE).cloned() }
    }

    /// Reports the run, which has ended: the span ends with the attempt, never with what follows from it.
    pub(crate) fn end(
        self,
        handler: &str,
        session: &SessionId,
        run: &HandlerRun,
        result: &Result<Vec<OutEvent>, RunError>,
    ) {
        let topic = &run.event.stream.topic;
        let times = (self.began_ns, now_nanos());
        let mut span = Span::new(self.event, format!("process {}", topic.topic()), SpanKind::Consumer, times)
            .with(name::SYSTEM, name::MILLRACE)
            .with(name::OPERATION_NAME, "process")
            .with(name::OPERATION_TYPE, "process")
            .with(name::DESTINATION, topic.topic())
            .with(name::NAMESPACE, topic.namespace())
            .with(name::PARTITION, run.event.stream.partition.to_string().as_str())
            .with(name::OFFSET, run.event.offset.0)
            .with(name::MESSAGE_ID, run.event.id.to_string().as_str())
            .with(name::HANDLER, handler)
            .with(name::SESSION, session.to_string().as_str())
            .with(name::ATTEMPT, u64::from(run.attempt))
            .with(name::DEPTH, u64::from(run.event.body.lineage.depth));
        span.id = self.own.span_id;
        span.links.push(self.event);
        if let Err(error) = result {
            span.error = Some(error.to_string());
            span = span.with(name::ERROR_TYPE, kind(error));
        }
        self.tracer.offer(span);
    }
}

fn kind(error: &RunError) -> &'static str {
    match error {
        RunError::Failed(_) => "failed",
        RunError::Hopeless(_) => "undecodable",
        RunError::RetryAfter { .. } => "retry_after",
        RunError::Snooze { .. } => "snoozed",
        RunError::Discard { .. } => "discarded",
    }
}
