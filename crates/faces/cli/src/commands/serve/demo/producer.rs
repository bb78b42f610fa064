//! Places orders, one at a time: the next one waits for the answer to this one, so a slow disk slows the shop down.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_broker::BrokerHandle;
use millrace_bus::{Publish, Reply, Request};
use millrace_model::{EventBody, Headers, JsonText, NewEvent, Requester};
use tokio::time::sleep;

use crate::commands::serve::demo::{PartEnd, RETRY_PAUSE, shop, topics};

pub(super) async fn run(broker: BrokerHandle) -> PartEnd {
    match place_orders(&broker).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

async fn place_orders(broker: &BrokerHandle) -> Result<std::convert::Infallible, PartEnd> {
    let refused = |why: String| PartEnd::Refused(why);
    let topic = topics::key(topics::ORDERS)
        .map_err(|failure| refused(failure.message().unwrap_or_default().to_owned()))?;
    let headers = Headers::from_map(&BTreeMap::from([("source".to_owned(), "demo".to_owned())]));
    for number in 1.. {
        let order = shop::order(number);
        let payload = JsonText::from_value(&order).map_err(|error| refused(error.to_string()))?;
        let key = Some(order.customer.as_str().into());
        let body = EventBody { key, headers: Some(headers.clone()), ..EventBody::of(payload) };
        let event = NewEvent { id: None, body: Arc::new(body) };
        let request = Request::Publish(Publish { topic: topic.clone(), event, deliver_at: None });
        match broker.call(Requester::Trusted, request).await? {
            // The disk is full, for example: that order is lost, and the next one is tried later.
            Reply::Refused(error) => {
                tracing::debug!("the demo could not place order {number}: {error}");
                sleep(RETRY_PAUSE).await;
            }
            _ => sleep(shop::pause_after(number)).await,
        }
    }
    Err(refused("all orders have been placed".to_owned()))
}
