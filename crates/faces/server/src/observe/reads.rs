//! Records who looked at the contents of events over HTTP: one record for each request, however many events it showed.

use std::sync::Arc;

use millrace_model::{Event, TopicKey};
use millrace_wire::http::AuditDoc;

use crate::access::Caller;
use crate::edge::Edge;
use crate::observe::{AuditKind, HttpRequester};

/// The contents that a request showed.
#[derive(Debug, Default)]
pub(crate) struct ContentRead<'a> {
    /// `events`, `event`, `letters` or `tail`.
    pub(crate) what: &'static str,
    pub(crate) topic: Option<&'a TopicKey>,
    /// The first of the events.
    pub(crate) first: Option<&'a Event>,
    /// How many; a tail begins before anybody knows.
    pub(crate) events: Option<u64>,
}

impl<'a> ContentRead<'a> {
    pub(crate) fn page(topic: &'a TopicKey, events: &'a [Arc<Event>]) -> ContentRead<'a> {
        let first = events.first().map(Arc::as_ref);
        ContentRead { what: "events", topic: Some(topic), first, events: Some(events.len() as u64) }
    }

    pub(crate) fn one(event: &'a Event) -> ContentRead<'a> {
        ContentRead { what: "event", topic: Some(&event.stream.topic), first: Some(event), events: Some(1) }
    }

    pub(crate) fn tail(topic: &'a TopicKey) -> ContentRead<'a> {
        ContentRead { what: "tail", topic: Some(topic), ..ContentRead::default() }
    }
}

impl Edge {
    /// Records that the caller was shown contents. Nothing is recorded of a request that showed none.
    pub(crate) fn content_read(&self, caller: &Caller, read: &ContentRead<'_>) {
        if read.events == Some(0) || !self.audit_log.wants(AuditKind::Read) {
            return;
        }
        let trace = HttpRequester::current().and_then(|requester| requester.trace.clone());
        let doc = AuditDoc {
            kind: "read".to_owned(),
            agent: caller.agent().map(str::to_owned),
            peer: Some(caller.peer.addr.to_string()),
            what: Some(read.what.to_owned()),
            namespace: read.topic.map(|topic| topic.namespace().to_owned()),
            topic: read.topic.map(|topic| topic.topic().to_owned()),
            partition: read.first.map(|event| event.stream.partition.0),
            offset: read.first.map(|event| event.offset.0),
            id: read.first.filter(|_| read.events == Some(1)).map(|event| event.id.to_string()),
            events: read.events,
            trace_id: trace.map(|trace| trace.as_str().to_owned()),
            ..AuditDoc::default()
        };
        self.audit_log.put(AuditKind::Read, doc);
    }
}
