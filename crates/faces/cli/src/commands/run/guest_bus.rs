//! `millrace.bus` for modules, through a server: what they publish is confirmed, and what they receive is leased until
//! they acknowledge it or their run ends.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use millrace_client::{
    Client, ClientError, Delivery, JsonText, NewMessage, PublishedPlace, StartFrom, SubscribeOptions,
    Subscription,
};
use millrace_wasm::RunNumber;
use millrace_wasm::capability::{
    BusPort, GuestAck, GuestEvent, GuestPublished, GuestReceive, GuestReceived, PortError, PortFuture,
};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The most topics that one run may receive from; further ones are refused.
const SUBSCRIPTIONS_MAX: usize = 16;

pub(super) struct GuestBus {
    client: Client,
    /// The runtime of the client; modules wait on another thread.
    runtime: Handle,
    members: Arc<Mutex<BTreeMap<RunNumber, GuestSubscriptions>>>,
}

/// The subscriptions of one run, by topic and group.
type GuestSubscriptions = BTreeMap<(String, String), GuestSubscription>;

struct GuestSubscription {
    subscription: Subscription,
    /// Events received and not acknowledged, by partition and offset. The server's window bounds their number.
    held: BTreeMap<(u32, u64), Delivery>,
}

impl GuestBus {
    pub(super) fn new(client: Client, runtime: Handle) -> GuestBus {
        GuestBus { client, runtime, members: Arc::default() }
    }

    fn on_runtime<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, PortError>> + Send + 'static,
    ) -> PortFuture<T> {
        let task = self.runtime.spawn(work);
        Box::pin(async move {
            task.await
                .unwrap_or_else(|error| Err(PortError::Unreachable(format!("the bus is gone: {error}"))))
        })
    }
}

impl BusPort for GuestBus {
    fn publish(&self, _: RunNumber, event: GuestEvent) -> PortFuture<GuestPublished> {
        let client = self.client.clone();
        self.on_runtime(async move {
            let topic = event.topic.clone();
            let published =
                client.publish(&topic, message(event)?).await.map_err(|error| port_error(&error))?;
            let (partition, offset) = match published.place {
                PublishedPlace::At { partition, offset } => (partition.0, offset.0),
                PublishedPlace::Due(_) => (0, 0),
            };
            Ok(GuestPublished { partition, offset, id: published.id.to_string() })
        })
    }

    fn emit(&self, _: RunNumber, _: GuestEvent) -> PortFuture<()> {
        let reason = "emit needs a durable handler around the run: use publish here";
        Box::pin(async move { Err(PortError::Unsupported(reason.to_owned())) })
    }

    fn receive(&self, run: RunNumber, request: GuestReceive) -> PortFuture<Option<GuestReceived>> {
        let (client, members) = (self.client.clone(), self.members.clone());
        self.on_runtime(async move {
            // The member is taken out of the map while it waits, so that the lock is free for other runs.
            let place = (request.topic.clone(), request.group.clone());
            let taken = members.lock().await.entry(run).or_default().remove(&place);
            let mut member = match taken {
                Some(member) => member,
                None => subscribe(&client, &members, run, &request).await?,
            };
            let waited = timeout(Duration::from_millis(request.wait_ms), member.subscription.next()).await;
            let delivery = match waited {
                Ok(delivery) => Some(delivery.map_err(|error| port_error(&error))?),
                Err(_) => member.subscription.try_next().map_err(|error| port_error(&error))?,
            };
            let received = delivery.map(|delivery| member.hold(delivery));
            // If the run has ended in the meantime, it was released, and dropping the member leaves the group.
            if let Some(members) = members.lock().await.get_mut(&run) {
                members.insert(place, member);
            }
            Ok(received)
        })
    }

    fn ack(&self, run: RunNumber, ack: GuestAck) -> PortFuture<()> {
        let members = self.members.clone();
        self.on_runtime(async move {
            let GuestAck { topic, group, partition, offset } = ack;
            let not_held = || {
                PortError::Invalid(format!(
                    "this run holds no event of {topic} at partition {partition}, offset {offset} for {group}"
                ))
            };
            let mut members = members.lock().await;
            let member =
                members.get_mut(&run).and_then(|members| members.get_mut(&(topic.clone(), group.clone())));
            let held =
                member.and_then(|member| member.held.remove(&(partition, offset))).ok_or_else(not_held)?;
            drop(members);
            held.ack_confirmed().await.map_err(|error| port_error(&error))
        })
    }

    fn release(&self, run: RunNumber) {
        let members = self.members.clone();
        // Leaving the groups gives back what was not acknowledged.
        drop(self.runtime.spawn(async move { drop(members.lock().await.remove(&run)) }));
    }
}

async fn subscribe(
    client: &Client,
    members: &Mutex<BTreeMap<RunNumber, GuestSubscriptions>>,
    run: RunNumber,
    request: &GuestReceive,
) -> Result<GuestSubscription, PortError> {
    if members.lock().await.get(&run).is_some_and(|members| members.len() >= SUBSCRIPTIONS_MAX) {
        return Err(PortError::Refused(format!(
            "a run may receive from {SUBSCRIPTIONS_MAX} topics and groups"
        )));
    }
    let options =
        SubscribeOptions::new(&request.topic, &request.group).map_err(|error| port_error(&error))?;
    // A program that asks for events also wants those that were published before.
    let options = options.from(StartFrom::Earliest);
    let subscription = client.subscribe(options).await.map_err(|error| port_error(&error))?;
    Ok(GuestSubscription { subscription, held: BTreeMap::new() })
}

impl GuestSubscription {
    fn hold(&mut self, delivery: Delivery) -> GuestReceived {
        let (partition, offset) = (delivery.partition().0, delivery.offset().0);
        let received = GuestReceived {
            partition,
            offset,
            id: delivery.message.envelope.id.to_string(),
            key: delivery.key().map(str::to_owned),
            payload: delivery.payload().as_str().to_owned(),
        };
        self.held.insert((partition, offset), delivery);
        received
    }
}

fn message(event: GuestEvent) -> Result<NewMessage, PortError> {
    let payload = JsonText::parse(&event.payload);
    let payload = payload.map_err(|error| PortError::Invalid(format!("the payload: {error}")))?;
    let mut message = NewMessage::new(payload);
    message.key = event.key;
    message.headers = event.headers.into_iter().collect();
    if let Some(id) = event.id {
        message = message.id(&id).map_err(|error| port_error(&error))?;
    }
    Ok(match event.delay_ms {
        Some(delay_ms) => message.delay_ms(delay_ms),
        None => message,
    })
}

fn port_error(error: &ClientError) -> PortError {
    let text = error.to_string();
    match error {
        ClientError::BadName(_) | ClientError::BadId(_) | ClientError::BadPayload(_) => {
            PortError::Invalid(text)
        }
        ClientError::Refused(_) => PortError::Refused(text),
        _ => PortError::Unreachable(text),
    }
}
