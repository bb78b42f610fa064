//! Spans about events that carry a sampled trace: `publish T` for a request, `deliver T` for each delivery.
//!
//! Both are parts of the span that published the event, as the event's `traceparent` says. The event's own header is not
//! changed: consumers see the context that its author set.

use std::time::Instant;

use millrace_bus::{DeliveryEnd, Reply, Request};
use millrace_model::{Event, EventBody, EventId, Group, NewEvent, Timestamp, TopicKey};
use millrace_telemetry::{Span, SpanKind, TraceContext, Tracer, conventions as name, nanos, now_nanos};

use crate::latencies::LeftAt;
use crate::to_wire;

/// Links of one span: events of a batch beyond are part of the span without a link.
const LINKS_MAX: usize = 128;

/// A publish under way with at least one event that is traced.
#[derive(Clone, Debug)]
pub(crate) struct TracedPublish {
    parent: TraceContext,
    links: Vec<TraceContext>,
    topic: TopicKey,
    events: u64,
    body_bytes: u64,
}

impl TracedPublish {
    pub(crate) fn of(tracer: Option<&Tracer>, request: &Request) -> Option<Box<TracedPublish>> {
        tracer?;
        let (topic, events) = match request {
            Request::Publish(publish) => (&publish.topic, std::slice::from_ref(&publish.event)),
            Request::PublishBatch(batch) => (&batch.topic, batch.events.as_slice()),
            _ => return None,
        };
        let context = |event: &NewEvent| TraceContext::of(event.body.headers.as_ref());
        let mut contexts = events.iter().filter_map(context);
        let parent = contexts.next()?;
        let mut links: Vec<TraceContext> = Vec::new();
        for context in contexts.filter(|context| *context != parent) {
            if links.len() < LINKS_MAX && links.last() != Some(&context) {
                links.push(context);
            }
        }
        let body_bytes = events.iter().map(|event| event.body.payload.as_str().len() as u64).sum();
        let (topic, events) = (topic.clone(), events.len() as u64);
        Some(Box::new(TracedPublish { parent, links, topic, events, body_bytes }))
    }

    /// Makes the span of a request that is answered now.
    pub(crate) fn span(&self, reply: &Reply, arrived: Instant, left: LeftAt) -> Span {
        let ended_ns = now_nanos();
        let took_ns = u64::try_from(left.since(arrived).as_nanos()).unwrap_or(u64::MAX);
        let times = (ended_ns.saturating_sub(took_ns), ended_ns);
        let mut span =
            Span::new(self.parent, format!("publish {}", self.topic.topic()), SpanKind::Server, times)
                .with(name::OPERATION_NAME, "publish")
                .with(name::OPERATION_TYPE, "send")
                .with(name::BODY_SIZE, self.body_bytes)
                .with_some(name::BATCH_COUNT, (self.events > 1).then_some(self.events));
        span.links.clone_from(&self.links);
        span = about(span, &self.topic);
        match reply {
            Reply::Published { id, at, durability, .. } => span
                .with(name::DURABILITY, durability.as_str())
                .with(name::MESSAGE_ID, id.to_string().as_str())
                .with_some(name::PARTITION, at.map(|(partition, _)| partition.to_string()).as_deref())
                .with_some(name::OFFSET, at.map(|(_, offset)| offset.0)),
            Reply::PublishedBatch { durability, .. } => span.with(name::DURABILITY, durability.as_str()),
            Reply::Refused(error) => {
                span.error = Some(error.why().to_string());
                span.with(name::ERROR_TYPE, to_wire::code(error.why()).as_str())
            }
            _ => span,
        }
    }
}

/// A delivery that is over, as the engine's note tells of it.
pub(crate) struct TracedDelivery<'a> {
    pub(crate) event: &'a Event,
    pub(crate) group: &'a Group,
    pub(crate) attempts: u32,
    pub(crate) lasted_ms: u64,
    pub(crate) ended: Timestamp,
    pub(crate) end: DeliveryEnd,
}

impl TracedDelivery<'_> {
    /// Returns `None` for an event whose trace is not sampled.
    pub(crate) fn span(&self) -> Option<Span> {
        let Event { stream, offset, id, body, .. } = self.event;
        let parent = TraceContext::of(body.headers.as_ref())?;
        let began = Timestamp(self.ended.0.saturating_sub(self.lasted_ms));
        let times = (nanos(began), nanos(self.ended));
        let mut span =
            Span::new(parent, format!("deliver {}", stream.topic.topic()), SpanKind::Client, times)
                .with(name::OPERATION_NAME, "deliver")
                .with(name::OPERATION_TYPE, "receive")
                .with(name::GROUP, self.group.as_str())
                .with(name::MESSAGE_ID, id.to_string().as_str())
                .with(name::PARTITION, stream.partition.to_string().as_str())
                .with(name::OFFSET, offset.0)
                .with(name::ATTEMPT, u64::from(self.attempts))
                .with(name::SETTLED, self.end.as_str());
        if !matches!(self.end, DeliveryEnd::Acked | DeliveryEnd::GivenBack) {
            span.error = Some(self.end.as_str().to_owned());
            span = span.with(name::ERROR_TYPE, self.end.as_str());
        }
        Some(about(lineage(span, body), &stream.topic))
    }
}

fn about(span: Span, topic: &TopicKey) -> Span {
    span.with(name::SYSTEM, name::MILLRACE)
        .with(name::DESTINATION, topic.topic())
        .with(name::NAMESPACE, topic.namespace())
}

fn lineage(span: Span, body: &EventBody) -> Span {
    let id = |id: &Option<EventId>| id.as_ref().map(ToString::to_string);
    let lineage = &body.lineage;
    span.with(name::DEPTH, u64::from(lineage.depth))
        .with_some(name::ROOT_ID, id(&lineage.root).as_deref())
        .with_some(name::CAUSATION_ID, id(&lineage.causation).as_deref())
        .with_some(name::CONVERSATION_ID, id(&lineage.correlation).as_deref())
}
