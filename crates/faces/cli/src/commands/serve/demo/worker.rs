//! The groups of the shop: each is one member, takes one event at a time, publishes what follows from it, and then
//! acknowledges it. The new event has an id made from that of its cause, so a second try publishes nothing twice.

use std::sync::Arc;
use std::time::Duration;

use millrace_broker::{BrokerHandle, BusConnection, Item, Received};
use millrace_bus::{Ack, ErrorCode, From, Nack, Publish, Reply, Request, Subscribe};
use millrace_model::{
    AckMode, Event, EventBody, EventId, Filter, Group, JsonText, Lineage, Namespace, NewEvent, Requester,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use crate::commands::serve::demo::{PartEnd, RETRY_PAUSE, shop, topics};

/// Events that a member may hold: few, so that the lag of the slow group is in its topic, where it can be seen.
const WINDOW: u32 = 8;
const TAKE_BYTES_MAX: usize = 1 << 20;
/// The pause before an event that failed is delivered again.
const AGAIN_MS: u64 = 400;
/// A request whose answer tells nothing new.
const REQUEST: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Takes the money for orders; the bank is silent now and then.
    Billing,
    /// Writes e-mails about payments; some addresses are wrong.
    Mailer,
    /// Packs orders, slowly.
    Warehouse,
    /// Asks for reviews when reminders are due.
    Reviews,
    /// Counts orders, and keeps up.
    Reports,
    /// Counts e-mails, and keeps up.
    Archive,
}

impl Role {
    pub(super) const ALL: [Role; 6] =
        [Role::Billing, Role::Mailer, Role::Warehouse, Role::Reviews, Role::Reports, Role::Archive];

    fn group(self) -> &'static str {
        match self {
            Role::Billing => "billing",
            Role::Mailer => "mailer",
            Role::Warehouse => "warehouse",
            Role::Reviews => "reviews",
            Role::Reports => "reports",
            Role::Archive => "archive",
        }
    }

    fn topic(self) -> &'static str {
        match self {
            Role::Billing | Role::Warehouse | Role::Reports => topics::ORDERS,
            Role::Mailer => topics::PAYMENTS,
            Role::Reviews => topics::REMINDERS,
            Role::Archive => topics::EMAILS,
        }
    }
}

/// The result of working on an event: what follows from it (topic and payload), or why it failed.
type Worked = Result<Option<(&'static str, JsonText)>, String>;

pub(super) struct Worker {
    broker: BrokerHandle,
    role: Role,
    opened: Instant,
}

impl Worker {
    pub(super) fn new(broker: BrokerHandle, role: Role) -> Worker {
        Worker { broker, role, opened: Instant::now() }
    }

    pub(super) async fn run(self) -> PartEnd {
        match self.work_on_deliveries().await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn work_on_deliveries(&self) -> Result<std::convert::Infallible, PartEnd> {
        let link = self.broker.open(Namespace::default())?;
        let group = Group::new(self.role.group()).map_err(|error| PartEnd::Refused(error.to_string()))?;
        send(&link, Request::Subscribe(self.subscription(&group)?)).await?;
        let mut items = Vec::new();
        loop {
            match link.receive(&mut items, WINDOW as usize, TAKE_BYTES_MAX).await {
                Received::Items { bytes } => link.written(bytes),
                Received::Closed => return Err(PartEnd::ServerEnds),
            }
            for item in items.drain(..) {
                match item {
                    Item::Delivery { event, attempts, .. } => {
                        let settled = self.settle(&group, &event, attempts.max(1)).await?;
                        send(&link, settled).await?;
                    }
                    Item::Reply { reply: Reply::Refused(error), .. } if !is_late(error.code()) => {
                        return Err(self.refused(&error));
                    }
                    Item::Notice { error, .. } => return Err(self.refused(&error)),
                    Item::Reply { .. } => {}
                }
            }
        }
    }

    fn refused(&self, error: &dyn std::fmt::Display) -> PartEnd {
        PartEnd::Refused(format!("group {}: {error}", self.role.group()))
    }

    fn subscription(&self, group: &Group) -> Result<Subscribe, PartEnd> {
        let topic = topics::key(self.role.topic())
            .map_err(|failure| PartEnd::Refused(failure.message().unwrap_or_default().to_owned()))?;
        Ok(Subscribe {
            topic,
            group: group.clone(),
            from: Some(From::Earliest),
            reset: false,
            max_inflight: Some(WINDOW),
            ack_mode: Some(AckMode::Individual),
            sticky: false,
            filter: Filter::default(),
        })
    }

    /// Works on an event and returns the request that ends its delivery.
    async fn settle(&self, group: &Group, event: &Event, attempt: u32) -> Result<Request, PartEnd> {
        let worked = match self.work(event, attempt).await {
            Ok(Some((topic, payload))) => self.publish_following(event, topic, payload).await?,
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        let (topic, partition, offset) = (event.stream.topic.clone(), event.stream.partition, event.offset);
        let group = group.clone();
        Ok(match worked {
            Ok(()) => Request::Ack(Ack { topic, partition, group, offset, confirm: false }),
            Err(reason) => Request::Nack(Nack {
                topic,
                partition,
                group,
                offset,
                reason: Some(reason),
                delay_ms: Some(AGAIN_MS),
                confirm: false,
            }),
        })
    }

    async fn work(&self, event: &Event, attempt: u32) -> Worked {
        match self.role {
            Role::Billing => following(topics::PAYMENTS, &shop::pay(&read(event)?, attempt)?),
            Role::Mailer => following(topics::EMAILS, &shop::confirm(&read(event)?)?),
            Role::Reviews => following(topics::EMAILS, &shop::ask_for_review(&read(event)?)?),
            Role::Warehouse => {
                sleep(self.packing_time()).await;
                shop::pack(&read(event)?).map(|()| None)
            }
            Role::Reports | Role::Archive => Ok(None),
        }
    }

    fn packing_time(&self) -> Duration {
        shop::packing_time(self.opened.elapsed())
    }

    /// Publishes what follows from an event, as often as it takes. `Ok(Err)` if it is refused for good.
    async fn publish_following(
        &self,
        cause: &Event,
        topic: &'static str,
        payload: JsonText,
    ) -> Result<Result<(), String>, PartEnd> {
        let refused = |why: String| PartEnd::Refused(why);
        let topic = topics::key(topic)
            .map_err(|failure| refused(failure.message().unwrap_or_default().to_owned()))?;
        let id = EventId::parse(&format!("{}.{}", cause.id, self.role.group()))
            .map_err(|error| refused(error.to_string()))?;
        let body =
            EventBody { key: cause.body.key.clone(), lineage: lineage(cause), ..EventBody::of(payload) };
        let event = NewEvent { id: Some(id), body: Arc::new(body) };
        loop {
            let publish = Publish { topic: topic.clone(), event: event.clone(), deliver_at: None };
            match self.broker.call(Requester::Trusted, Request::Publish(publish)).await? {
                Reply::Refused(error) if error.code() == ErrorCode::StorageFailed => sleep(RETRY_PAUSE).await,
                Reply::Refused(error) => return Ok(Err(error.to_string())),
                _ => return Ok(Ok(())),
            }
        }
    }
}

async fn send(link: &BusConnection, request: Request) -> Result<(), PartEnd> {
    Ok(link.send(&Requester::Trusted, &mut vec![(REQUEST, request)]).await?)
}

/// The lease expired, or the group was moved, while the event was worked on: another delivery of it settles it.
fn is_late(code: ErrorCode) -> bool {
    code == ErrorCode::UnknownOffset
}

/// Reads the payload. A visitor may publish anything to the shop's topics: it fails like any other bad order.
fn read<T: DeserializeOwned>(event: &Event) -> Result<T, String> {
    serde_json::from_str(event.body.payload.as_str()).map_err(|error| format!("not understood: {error}"))
}

fn following(topic: &'static str, payload: &impl Serialize) -> Worked {
    JsonText::from_value(payload).map(|payload| Some((topic, payload))).map_err(|error| error.to_string())
}

/// The new event follows from `cause`, in the chain that `cause` belongs to.
fn lineage(cause: &Event) -> Lineage {
    let of_cause = &cause.body.lineage;
    let root = of_cause.root.clone().unwrap_or_else(|| cause.id.clone());
    Lineage {
        correlation: Some(of_cause.correlation.clone().unwrap_or_else(|| root.clone())),
        root: Some(root),
        depth: of_cause.depth.saturating_add(1),
        causation: Some(cause.id.clone()),
    }
}
