//! Records what was carried out: a log line with the trace, and a record of the audit.

use std::net::SocketAddr;

use millrace_bus::{Reply, Request};
use millrace_model::{EventId, Namespace, Offset, Partition, TopicKey, TraceId};
use millrace_wire::http::AuditDoc;

use crate::app::App;
use crate::observe::{AuditKind, HttpRequester};

/// The party that a request was carried out for.
pub(crate) struct RequestParty<'a> {
    pub(crate) agent: Option<&'a str>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) trace: Option<&'a TraceId>,
}

/// Where an event was stored, as far as that is known.
struct PublishedEvent<'a> {
    topic: &'a TopicKey,
    id: Option<&'a EventId>,
    at: Option<(Partition, Offset)>,
    events: u64,
}

/// The trace of the event that a request publishes; of a batch, that of its first event.
pub(crate) fn publish_trace(request: &Request) -> Option<TraceId> {
    let event = match request {
        Request::Publish(publish) => &publish.event,
        Request::PublishBatch(batch) => batch.events.first()?,
        _ => return None,
    };
    TraceId::of(event.body.headers.as_ref())
}

impl App {
    /// Records an answer of the engine. Runs for every answer, so costly parts first check that somebody wants them.
    pub(crate) fn done(&self, reply: &Reply, by: &RequestParty<'_>) {
        match reply {
            Reply::Published { topic, id, at, .. } => {
                self.published(&PublishedEvent { topic, id: Some(id), at: *at, events: 1 }, by);
            }
            Reply::PublishedBatch { topic, offsets, .. } => {
                let (at, events) = (offsets.first().copied(), offsets.len() as u64);
                self.published(&PublishedEvent { topic, id: None, at, events }, by);
            }
            Reply::Subscribed { topic, group, .. } => {
                self.record(AuditKind::Subscribe, "subscribed", topic, Some(group.as_str()), by);
            }
            Reply::Unsubscribed { topic, group } => {
                self.record(AuditKind::Subscribe, "unsubscribed", topic, Some(group.as_str()), by);
            }
            Reply::TopicDeleted { topic } => self.record(AuditKind::Admin, "topic_deleted", topic, None, by),
            Reply::GroupDeleted { topic, group } => {
                self.record(AuditKind::Admin, "group_deleted", topic, Some(group.as_str()), by);
            }
            Reply::LettersRemoved { topic, .. } => {
                self.record(AuditKind::Admin, "letters_deleted", topic, None, by);
            }
            Reply::GroupPaused { topic, group, paused } => {
                let kind = if *paused { "group_paused" } else { "group_resumed" };
                self.record(AuditKind::Admin, kind, topic, Some(group.as_str()), by);
            }
            Reply::Sought { topic, group, .. } => {
                self.record(AuditKind::Admin, "group_moved", topic, Some(group.as_str()), by);
            }
            _ => {}
        }
    }

    /// Records that a topic was created or changed. Callers decide that, because reading a topic gives the same reply.
    pub(crate) fn topic_written(&self, created: bool, topic: &TopicKey, by: &RequestParty<'_>) {
        let kind = if created { "topic_created" } else { "topic_changed" };
        self.record(AuditKind::Admin, kind, topic, None, by);
    }

    /// Records an act on something that the engine does not know: a durable handler, a schedule, a delayed event, a timer.
    pub(crate) fn acted(&self, kind: &str, namespace: &Namespace, target: &str) {
        if self.edge.audit_log.wants(AuditKind::Admin) {
            let by = HttpRequester::current();
            let doc = AuditDoc {
                kind: kind.to_owned(),
                agent: by.as_deref().and_then(HttpRequester::agent).map(str::to_owned),
                peer: by.as_deref().and_then(|by| by.peer).map(|peer| peer.to_string()),
                namespace: Some(namespace.to_string()),
                target: Some(target.to_owned()),
                trace_id: by.as_deref().and_then(|by| Some(by.trace.as_ref()?.as_str().to_owned())),
                ..AuditDoc::default()
            };
            self.edge.audit_log.put(AuditKind::Admin, doc);
        }
    }

    fn published(&self, done: &PublishedEvent<'_>, by: &RequestParty<'_>) {
        let PublishedEvent { topic, id, at, events } = done;
        tracing::debug!(
            target: "millrace::published",
            namespace = topic.namespace(),
            topic = topic.topic(),
            partition = at.map(|(partition, _)| partition.0),
            offset = at.map(|(_, offset)| offset.0),
            id = id.map(tracing::field::display),
            events,
            agent = by.agent,
            trace_id = by.trace.map(TraceId::as_str),
            "published"
        );
        if self.edge.audit_log.wants(AuditKind::Publish) {
            let doc = AuditDoc {
                partition: at.map(|(partition, _)| partition.0),
                offset: at.map(|(_, offset)| offset.0),
                id: id.map(ToString::to_string),
                events: Some(*events),
                ..document("published", topic, by)
            };
            self.edge.audit_log.put(AuditKind::Publish, doc);
        }
    }

    fn record(
        &self,
        of: AuditKind,
        kind: &str,
        topic: &TopicKey,
        group: Option<&str>,
        by: &RequestParty<'_>,
    ) {
        if self.edge.audit_log.wants(of) {
            let group = group.map(str::to_owned);
            self.edge.audit_log.put(of, AuditDoc { group, ..document(kind, topic, by) });
        }
    }
}

fn document(kind: &str, topic: &TopicKey, by: &RequestParty<'_>) -> AuditDoc {
    AuditDoc {
        kind: kind.to_owned(),
        agent: by.agent.map(str::to_owned),
        peer: by.peer.map(|peer| peer.to_string()),
        namespace: Some(topic.namespace().to_owned()),
        topic: Some(topic.topic().to_owned()),
        trace_id: by.trace.map(|trace| trace.as_str().to_owned()),
        ..AuditDoc::default()
    }
}
