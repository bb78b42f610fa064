//! Places orders, one at a time: the next one waits for the answer to this one, so a slow disk slows the shop down. Some
//! orders set a reminder, which is an event that is delivered later.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_broker::BrokerHandle;
use millrace_bus::{Publish, Reply, Request};
use millrace_model::{
    DeliverAt, EventBody, EventId, Headers, JsonText, Lineage, NewEvent, Requester, TopicKey,
};
use serde::Serialize;
use tokio::time::sleep;

use crate::commands::serve::demo::{PartEnd, RETRY_PAUSE, shop, topics};

pub(super) async fn run(broker: BrokerHandle) -> PartEnd {
    match place_orders(&broker).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

async fn place_orders(broker: &BrokerHandle) -> Result<std::convert::Infallible, PartEnd> {
    let (orders, reminders) = (topic(topics::ORDERS)?, topic(topics::REMINDERS)?);
    let headers = Headers::from_map(&BTreeMap::from([("source".to_owned(), "demo".to_owned())]));
    for number in 1.. {
        let order = shop::order(number);
        let body = EventBody { headers: Some(headers.clone()), ..from_customer(&order.customer, &order)? };
        // The disk is full, for example: that order is lost, and the next one is tried later.
        let Some(placed) = publish(broker, &orders, body, None).await? else {
            sleep(RETRY_PAUSE).await;
            continue;
        };
        if let Some(reminder) = shop::reminder(&order) {
            let lineage = first_after(placed);
            let body = EventBody { lineage, ..from_customer(&reminder.customer, &reminder)? };
            let later = DeliverAt::AfterMs(shop::REVIEW_AFTER.as_millis() as u64);
            publish(broker, &reminders, body, Some(later)).await?;
        }
        sleep(shop::pause_after(number)).await;
    }
    Err(PartEnd::Refused("all orders have been placed".to_owned()))
}

fn topic(name: &str) -> Result<TopicKey, PartEnd> {
    topics::key(name).map_err(|failure| PartEnd::Refused(failure.message().unwrap_or_default().to_owned()))
}

/// The event of a customer. The key keeps the events of each customer in order.
fn from_customer(customer: &str, payload: &impl Serialize) -> Result<EventBody, PartEnd> {
    let payload = JsonText::from_value(payload).map_err(|error| PartEnd::Refused(error.to_string()))?;
    Ok(EventBody { key: Some(customer.into()), ..EventBody::of(payload) })
}

/// Publishes an event and returns its id, or `None` if the server refuses the event.
async fn publish(
    broker: &BrokerHandle,
    topic: &TopicKey,
    body: EventBody,
    deliver_at: Option<DeliverAt>,
) -> Result<Option<EventId>, PartEnd> {
    let event = NewEvent { id: None, body: Arc::new(body) };
    let request = Request::Publish(Publish { topic: topic.clone(), event, deliver_at });
    match broker.call(Requester::Trusted, request).await? {
        Reply::Published { id, .. } => Ok(Some(id)),
        Reply::Refused(error) => {
            tracing::debug!("the demo could not publish to {}: {error}", topic.topic());
            Ok(None)
        }
        other => Err(PartEnd::Refused(format!("unexpected answer {other:?}"))),
    }
}

/// The lineage of an event that follows from `order`, which began a chain.
fn first_after(order: EventId) -> Lineage {
    Lineage { root: Some(order.clone()), depth: 1, correlation: Some(order.clone()), causation: Some(order) }
}
