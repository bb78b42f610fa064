//! What was done for somebody: the line in the log that carries its trace, and the record of the audit.

use std::net::SocketAddr;

use millrace_bus::{Reply, Request};
use millrace_model::{EventId, Offset, Partition, TopicKey, TraceId};
use millrace_wire::http::AuditDoc;

use crate::app::App;
use crate::observe::AuditKind;

/// For whom.
pub(crate) struct Done<'a> {
    pub(crate) agent: Option<&'a str>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) trace: Option<&'a TraceId>,
}

/// Where an event went, as far as it is known.
struct Published<'a> {
    topic: &'a TopicKey,
    id: Option<&'a EventId>,
    at: Option<(Partition, Offset)>,
    events: u64,
}

/// Of the event a request publishes; of a batch, of the first.
pub(crate) fn publish_trace(request: &Request) -> Option<TraceId> {
    let event = match request {
        Request::Publish(publish) => &publish.event,
        Request::PublishBatch(batch) => batch.events.first()?,
        _ => return None,
    };
    TraceId::of(event.body.headers.as_ref())
}

impl App {
    /// Called for every answer, so whatever costs something asks first whether somebody wants it.
    pub(crate) fn done(&self, reply: &Reply, by: &Done<'_>) {
        match reply {
            Reply::Published { topic, id, at, .. } => {
                self.published(&Published { topic, id: Some(id), at: *at, events: 1 }, by);
            }
            Reply::PublishedBatch { topic, offsets, .. } => {
                let (at, events) = (offsets.first().copied(), offsets.len() as u64);
                self.published(&Published { topic, id: None, at, events }, by);
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
            Reply::Sought { topic, group, .. } => {
                self.record(AuditKind::Admin, "group_moved", topic, Some(group.as_str()), by);
            }
            _ => {}
        }
    }

    /// A topic was made or given other settings; a look at one is answered the same way.
    pub(crate) fn topic_written(&self, created: bool, topic: &TopicKey, by: &Done<'_>) {
        let kind = if created { "topic_created" } else { "topic_changed" };
        self.record(AuditKind::Admin, kind, topic, None, by);
    }

    fn published(&self, done: &Published<'_>, by: &Done<'_>) {
        let Published { topic, id, at, events } = done;
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
        if self.trail.wants(AuditKind::Publish) {
            let doc = AuditDoc {
                partition: at.map(|(partition, _)| partition.0),
                offset: at.map(|(_, offset)| offset.0),
                id: id.map(ToString::to_string),
                events: Some(*events),
                ..document("published", topic, by)
            };
            self.trail.put(AuditKind::Publish, doc);
        }
    }

    fn record(&self, of: AuditKind, kind: &str, topic: &TopicKey, group: Option<&str>, by: &Done<'_>) {
        if self.trail.wants(of) {
            let group = group.map(str::to_owned);
            self.trail.put(of, AuditDoc { group, ..document(kind, topic, by) });
        }
    }
}

fn document(kind: &str, topic: &TopicKey, by: &Done<'_>) -> AuditDoc {
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
