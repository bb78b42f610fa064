//! Consumes the notes of the engine: dead letters go to the log, other notes to the log or, if it is on, the audit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use millrace_bus::Note;
use millrace_model::{Event, TraceId};
use millrace_wire::http::AuditDoc;
use tokio::sync::mpsc;

use crate::access::{Meter, Rate};
use crate::app::SharedApp;
use crate::observe::traces::TracedDelivery;
use crate::observe::{AuditKind, audit_log};

/// Log lines about dead letters per second, and at once. Lines above this rate are left out; the next line says how
/// many.
const LINES: Rate = Rate { per_second: 10, burst: 100 };

/// Runs until the broker has ended.
pub(super) async fn run(app: SharedApp, mut notes: mpsc::Receiver<Note>) {
    let (lines, suppressed) = (Meter::new(LINES), AtomicU64::new(0));
    while let Some(note) = notes.recv().await {
        match note {
            Note::DeadLettered { letter } if lines.spend(1).is_err() => {
                suppressed.fetch_add(1, Relaxed);
                drop(letter);
            }
            Note::DeadLettered { letter } => log(&letter, suppressed.swap(0, Relaxed)),
            Note::ClockAhead { by_ms, believed_in_ms } => tracing::warn!(
                by_ms,
                believed_in_ms,
                "the wall clock is more than a day ahead of when this store was last in use: the machine was off, or its \
                 clock is wrong. Ages go on from when the store was last in use, so nothing is removed by an age that only \
                 the wall clock shows. A server that starts after the clock has been steady for believed_in_ms counts ages \
                 from it: if the clock is wrong, set it right before"
            ),
            Note::Removed { topic, events } => tracing::info!(
                namespace = topic.namespace(),
                topic = topic.topic(),
                events,
                "retention removed events"
            ),
            Note::Acked { at, agent, events } => {
                let agent = agent.map(String::from);
                let doc = AuditDoc { agent, events: Some(events), ..audit_log::about("acked", &at) };
                app.edge.audit_log.put(AuditKind::Ack, doc);
            }
            Note::Nacked { at, agent, reason } => {
                let agent = agent.map(String::from);
                let doc = AuditDoc { agent, why: Some(reason), ..audit_log::about("nacked", &at) };
                app.edge.audit_log.put(AuditKind::Ack, doc);
            }
            Note::DeliveryEnded { event, group, attempts, lasted_ms, ended, end } => {
                let delivery =
                    TracedDelivery { event: &event, group: &group, attempts, lasted_ms, ended, end };
                if let Some(tracer) = &app.edge.settings.tracer
                    && let Some(span) = delivery.span()
                {
                    tracer.offer(span);
                }
            }
            Note::Redelivery { at, attempts, reason, decision } => {
                let doc = AuditDoc {
                    attempts: Some(attempts),
                    decision: Some(decision.as_str().to_owned()),
                    why: Some(reason),
                    ..audit_log::about("redelivery", &at)
                };
                app.edge.audit_log.put(AuditKind::Redelivery, doc);
            }
        }
    }
}

fn log(letter: &Event, suppressed: u64) {
    let headers = letter.body.headers.as_ref();
    let trace_id = TraceId::of(headers);
    let headers = headers.map(millrace_model::Headers::to_map).unwrap_or_default();
    let header = |name| headers.get(name).map_or("", String::as_str);
    tracing::warn!(
        target: "millrace::dead_letters",
        namespace = letter.stream.topic.namespace(),
        topic = header("x-dlq-topic"),
        partition = header("x-dlq-partition"),
        offset = header("x-dlq-offset"),
        group = header("x-dlq-group"),
        attempts = header("x-dlq-attempts"),
        reason = header("x-dlq-reason"),
        id = header("x-dlq-id"),
        trace_id = trace_id.as_ref().map(TraceId::as_str),
        suppressed,
        "dead-lettered"
    );
}
