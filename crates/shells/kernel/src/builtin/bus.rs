//! The capability Bus. `Bus.Publish` turns a command into a durable event; `Bus.Subscribe` feeds the durable events of
//! a topic to a capability.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use millrace_broker::BrokerCall;
use millrace_bus::{Publish, Reply, Request};
use millrace_model::{
    EventId, Group, JsonText, Lineage, Namespace, OsFault, OsId, OsKind, OsMessage, TopicKey, TopicName,
    TraceId,
};
use millrace_router::{BusTopic, DeliveryId};
use millrace_wire::http::PublishBody;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::faults;
use crate::builtin::feed::FeedPlan;
use crate::builtin::feeds::Feeds;
use crate::capabilities::capability::Capability;
use crate::capabilities::context::Context;
use crate::capabilities::handlers;
use crate::capabilities::port::{Delivery, Port};
use crate::clients::audit_hook::AuditEvent;

/// Messages whose commit is under way. The rest waits in the mailbox.
const UNDER_WAY_MAX: usize = 256;

const PUBLISH: &str = "Bus.Publish";

pub fn bus(feeds: Arc<Feeds>) -> Capability {
    let about = "Durable topics: publishes events, and feeds them to actors";
    Capability::actor("Bus", about, move |port| Box::pin(work(port, feeds)))
        .takes(
            OsKind::Command,
            PUBLISH,
            "Publishes an event; the reply comes when it is durable",
            Some(publish_schema()),
        )
        .answers(published_schema())
        .takes(
            OsKind::Command,
            "Bus.Subscribe",
            "For actors: the events of a topic arrive as Bus.Message, each acknowledged when it was processed",
            Some(subscribe_schema()),
        )
        .answers(json!({
            "type": "object",
            "properties": {
                "topic": { "type": "string" },
                "group": { "type": "string" },
                "partitions": { "type": "array", "description": "{partition, next} of each partition" },
            },
        }))
}

/// Takes messages in order, hands them to the bus in order and answers them in order. Does not wait for a commit before
/// it hands over the next message, so that several commits share a sync.
async fn work(port: Port, feeds: Arc<Feeds>) {
    let mut under_way = FuturesOrdered::new();
    loop {
        tokio::select! {
            delivery = port.next(), if under_way.len() < UNDER_WAY_MAX => match delivery {
                Some(delivery) => {
                    // Handed over here and not in the future, because the order in which futures are polled is not
                    // defined.
                    let publish = hand_over(&port, &feeds, &delivery).await;
                    under_way.push_back(handle(&port, &feeds, delivery, publish));
                }
                None => return,
            },
            Some((request, delivery, result)) = under_way.next() => match result {
                Ok(data) => {
                    port.answer(delivery, handlers::reply(&port, &request, data));
                    port.done(delivery, Ok(()));
                }
                Err(fault) => port.done(delivery, Err(fault)),
            },
        }
    }
}

/// For a publish: its call to the bus and the trace it belongs to, or why it failed. `None` for another message.
type Handed = Option<Result<(BrokerCall, Option<TraceId>), OsFault>>;

async fn hand_over(port: &Port, feeds: &Feeds, delivery: &Delivery) -> Handed {
    if delivery.message.ty.as_str() != PUBLISH {
        return None;
    }
    let ctx = context(port, delivery);
    let request = match request(&delivery.message) {
        Ok(request) => request,
        Err(fault) => return Some(Err(fault)),
    };
    let trace = match &request {
        Request::Publish(publish) if feeds.is_watched() => TraceId::of(publish.event.body.headers.as_ref()),
        _ => None,
    };
    let call = feeds.bus().hand_over(ctx.requester().clone(), request).await;
    Some(call.map(|call| (call, trace)).map_err(faults::of_ended))
}

fn context(port: &Port, delivery: &Delivery) -> Context {
    let Delivery { id, message, by, .. } = delivery;
    Context::new(port.capability(), *id, message.clone(), by.clone(), port.kernel().clone())
}

async fn handle(
    port: &Port,
    feeds: &Feeds,
    delivery: Delivery,
    publish: Handed,
) -> (Arc<OsMessage>, DeliveryId, Result<JsonText, OsFault>) {
    let ctx = context(port, &delivery);
    let result = match publish {
        Some(Ok((call, trace))) => published(feeds, &ctx, call, trace).await,
        Some(Err(fault)) => Err(fault),
        None => subscribe(feeds, &ctx).await,
    };
    (delivery.message, delivery.id, result)
}

/// The topic a message wants to publish to, or to read from.
#[derive(Deserialize)]
pub(crate) struct Where {
    topic: String,
    pub(crate) namespace: Option<String>,
}

/// Reads the topic and namespace of a message. The edges check a token's rights with this same function before the
/// message comes here, so both see the same namespace.
pub(crate) fn place_of(data: &JsonText) -> Result<Where, OsFault> {
    serde_json::from_str(&data.last_members()).map_err(|error| faults::of_data(&error))
}

/// The namespace that a message names, if any. The edges use the same function, as with [`place_of`].
pub(crate) fn namespace_of(data: &JsonText) -> Result<Option<String>, OsFault> {
    #[derive(Deserialize)]
    struct Named {
        namespace: Option<String>,
    }
    let named: Named = serde_json::from_str(&data.last_members()).map_err(|error| faults::of_data(&error))?;
    Ok(named.namespace)
}

fn request(message: &OsMessage) -> Result<Request, OsFault> {
    let topic = topic_of(&place_of(&message.data)?)?;
    // The data has the same members as the body of an HTTP publish, so the same parser reads it.
    let body = PublishBody::parse(&message.data.last_members()).map_err(|error| faults::of_frame(&error))?;
    let PublishBody::One { mut event, deliver_at } = body else {
        return Err(OsFault::new(422, "Schema validation failed: data is an array: publish one event"));
    };
    Arc::make_mut(&mut event.body).lineage = lineage(message);
    Ok(Request::Publish(Publish { topic, event, deliver_at }))
}

async fn published(
    feeds: &Feeds,
    ctx: &Context,
    call: BrokerCall,
    trace: Option<TraceId>,
) -> Result<JsonText, OsFault> {
    let reply = call.reply().await;
    if let Ok(reply) = &reply {
        feeds.seen(&AuditEvent::Bus { by: ctx.principal(), what: PUBLISH, reply, trace: trace.as_ref() });
    }
    match reply {
        Ok(Reply::Published { topic, id, at, due, durability }) => {
            let mut data =
                json!({ "topic": topic.topic(), "id": id.to_string(), "durability": durability.as_str() });
            if let Some((partition, offset)) = at {
                data["partition"] = partition.0.into();
                data["offset"] = offset.0.into();
            }
            if let Some(due) = due {
                data["due"] = due.0.into();
            }
            ctx.reply(&data)
        }
        Ok(other) => Err(faults::of_reply(&other)),
        Err(ended) => Err(faults::of_ended(ended)),
    }
}

/// The event is caused by the command. An id of a message that is not a valid id of an event is left out.
fn lineage(message: &OsMessage) -> Lineage {
    let id = |id: &OsId| EventId::parse(id.as_str()).ok();
    let metadata = &message.metadata;
    Lineage {
        causation: id(&metadata.id),
        correlation: metadata.correlation.as_ref().and_then(id),
        ..Lineage::default()
    }
}

#[derive(Deserialize)]
struct Subscription {
    #[serde(flatten)]
    at: Where,
    group: Option<String>,
    from: Option<FeedStart>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum FeedStart {
    Earliest,
    Latest,
}

async fn subscribe(feeds: &Feeds, ctx: &Context) -> Result<JsonText, OsFault> {
    let Some((to, name)) = ctx.asker().await? else {
        return Err(OsFault::new(
            403,
            "Bus.Subscribe is for capabilities, which have a mailbox: subscribe over the WebSocket of the bus, or put \
             the topic into the manifest of a capability",
        ));
    };
    let Subscription { at, group, from } = ctx.data()?;
    let topic = topic_of(&at)?;
    let group = group.unwrap_or_else(|| format!("os.{name}"));
    let wrong =
        |error: millrace_model::NameError| OsFault::new(422, format!("Schema validation failed: {error}"));
    let plan = FeedPlan {
        to,
        capability: name,
        namespace: Namespace::new(topic.namespace()).map_err(wrong)?,
        topic: BusTopic {
            topic: TopicName::new(topic.topic()).map_err(wrong)?,
            group: Group::new(&group).map_err(wrong)?,
            from_earliest: from == Some(FeedStart::Earliest),
        },
    };
    let reply = feeds.subscribe(ctx.kernel(), plan).await?;
    feeds.seen(&AuditEvent::Bus { by: ctx.principal(), what: "Bus.Subscribe", reply: &reply, trace: None });
    match reply {
        Reply::Subscribed { topic, group, partitions } => {
            let partitions: Vec<Value> = partitions
                .iter()
                .map(|(partition, next)| json!({ "partition": partition.0, "next": next.0 }))
                .collect();
            ctx.reply(&json!({ "topic": topic.topic(), "group": group.as_str(), "partitions": partitions }))
        }
        other => Err(faults::of_reply(&other)),
    }
}

fn topic_of(at: &Where) -> Result<TopicKey, OsFault> {
    let wrong =
        |error: millrace_model::NameError| OsFault::new(422, format!("Schema validation failed: {error}"));
    let namespace = match &at.namespace {
        None => Namespace::default(),
        Some(name) => Namespace::new(name).map_err(wrong)?,
    };
    Ok(TopicKey::new(&namespace, &TopicName::new(&at.topic).map_err(wrong)?))
}

fn publish_schema() -> Value {
    json!({
        "type": "object",
        "required": ["topic", "payload"],
        "properties": {
            "topic": { "type": "string" },
            "payload": { "description": "Any JSON value, kept byte for byte" },
            "key": { "type": ["string", "null"], "description": "Events of one key stay in order" },
            "headers": { "type": ["object", "null"], "additionalProperties": { "type": "string" } },
            "id": { "type": ["string", "null"], "description": "The same id on the same topic is stored once" },
            "priority": { "type": ["integer", "null"] },
            "namespace": { "type": ["string", "null"] },
            "delay_ms": { "type": ["integer", "null"], "minimum": 0 },
            "deliver_at": { "type": ["integer", "null"], "minimum": 0 },
        },
    })
}

fn published_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "topic": { "type": "string" },
            "partition": { "type": "integer" },
            "offset": { "type": "integer" },
            "id": { "type": "string" },
            "durability": { "enum": ["fsync", "os", "memory"] },
            "due": { "type": "integer", "description": "For a delayed event, instead of partition and offset" },
        },
    })
}

fn subscribe_schema() -> Value {
    json!({
        "type": "object",
        "required": ["topic"],
        "properties": {
            "topic": { "type": "string" },
            "group": { "type": ["string", "null"], "description": "Default: os.NAME of the capability" },
            "from": { "enum": ["earliest", "latest", null], "description": "Where a new group begins" },
            "namespace": { "type": ["string", "null"] },
        },
    })
}
