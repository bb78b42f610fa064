//! `event/bus` of a guest beside a Millrace server: the server stores what the guest publishes before the guest gets
//! its answer, and the guest receives what others publish.

mod event_data;
mod topic_link;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_client::{AckMode, Client, ClientError, ErrorCode, SubscribeOptions};
use millrace_model::{EventId, Group, TopicName};
use millrace_zabi::{BusError, BusEvent, BusPort, BusSubscriber, SubscriptionId, WaitAnswer, Waiter};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use ureq::http::Method;

use self::topic_link::TopicLink;
use crate::commands::connect::client_options;
use crate::commands::now;
use crate::failure::Failure;
use crate::http::Http;
use crate::settings::Config;

/// The most events of one topic that the guest may hold unread; the server keeps the rest.
const INFLIGHT_MAX: u32 = 256;

#[derive(Debug)]
pub(super) struct ServerBus {
    shared: Arc<ServerBusState>,
    /// The runtime of the client; the guest waits on another thread.
    runtime: Handle,
    last_id: AtomicU32,
}

/// The state shared with the tasks. Each topic has one subscription at the server, however many handles of the guest
/// subscribe to it: every handle gets every event.
struct ServerBusState {
    client: Client,
    /// The group whose position outlives the guest. Without it each topic has a group of its own, which is deleted when
    /// the link is closed.
    group: Option<Group>,
    http: Http,
    /// Locked while a link is opened or closed, so that a topic never has two links.
    opening: tokio::sync::Mutex<()>,
    links: Mutex<Links>,
}

#[derive(Default)]
struct Links {
    by_topic: BTreeMap<TopicName, Arc<TopicLink>>,
    by_subscription: BTreeMap<SubscriptionId, Arc<TopicLink>>,
    /// The tasks of all links, including links that are being closed.
    tasks: JoinSet<()>,
}

impl ServerBus {
    pub(super) async fn connect(config: &Config, group: Option<Group>) -> Result<ServerBus, Failure> {
        let http = Http::new(config)?;
        let client = Client::connect(client_options(config)?).await?;
        let (opening, links) = Default::default();
        let shared = Arc::new(ServerBusState { client, group, http, opening, links });
        Ok(ServerBus { shared, runtime: Handle::current(), last_id: AtomicU32::new(0) })
    }

    /// Leaves all groups, after acknowledging what the guest has read.
    pub(super) async fn close(&self) {
        let mut links = std::mem::take(&mut *self.shared.links.lock());
        links.by_topic.into_values().for_each(|link| link.leave_all());
        while let Some(ended) = links.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a subscription of the guest was not closed");
            }
        }
        self.shared.client.close().await;
    }
}

impl BusPort for ServerBus {
    fn next_subscription(&self) -> Result<SubscriptionId, BusError> {
        let next = |last: u32| last.checked_add(1);
        let last = self.last_id.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        last.map(|last| SubscriptionId(last + 1)).map_err(|_| BusError::TooManySubscriptions)
    }

    fn subscribe(
        &self,
        subscription: SubscriptionId,
        topic: &[u8],
        subscriber: Arc<dyn BusSubscriber>,
        waiter: &Waiter,
    ) -> Result<(), BusError> {
        let topic = topic_name(topic)?;
        let shared = Arc::clone(&self.shared);
        waiter.wait(|answer| {
            drop(self.runtime.spawn(shared.subscribe(subscription, topic, subscriber, answer)));
        })?
    }

    fn unsubscribe(&self, subscription: SubscriptionId) {
        let link = self.shared.links.lock().by_subscription.remove(&subscription);
        if let Some(link) = link {
            link.leave(subscription);
        }
    }

    fn has_room_again(&self) {
        self.shared.links.lock().by_topic.values().for_each(|link| link.look_again());
    }

    fn publish(&self, event: &BusEvent<'_>, waiter: &Waiter) -> Result<u32, BusError> {
        let topic = topic_name(event.topic)?;
        let message = event_data::to_message(event.data);
        let client = self.shared.client.clone();
        let published = waiter.wait(|answer: WaitAnswer<Result<_, ClientError>>| {
            drop(self.runtime.spawn(async move {
                let published = client.publish(topic.as_str(), message).await;
                let outcome = published.as_ref().map(|_| ()).map_err(ClientError::to_string);
                if !answer.send(published) {
                    tracing::warn!(%topic, ?outcome, "a publish of the guest was answered too late");
                }
            }));
        })?;
        // Returns 1 as the number of receivers: the server has stored the event for every subscriber.
        published.map(|_| 1).map_err(|error| bus_error(&error))
    }
}

impl ServerBusState {
    async fn subscribe(
        self: Arc<ServerBusState>,
        subscription: SubscriptionId,
        topic: TopicName,
        subscriber: Arc<dyn BusSubscriber>,
        answer: WaitAnswer<Result<(), BusError>>,
    ) {
        let opening = self.opening.lock().await;
        let opened = self.link(&topic).await.map_err(|error| bus_error(&error));
        if let Ok(link) = &opened {
            self.links.lock().by_subscription.insert(subscription, Arc::clone(link));
            link.join(subscription, subscriber);
        }
        drop(opening);
        let link = opened.as_ref().ok().cloned();
        if !answer.send(opened.map(drop)) {
            // The guest has already been told that there was no answer, so the subscription is undone.
            self.links.lock().by_subscription.remove(&subscription);
            if let Some(link) = link {
                link.leave(subscription);
            }
        }
    }

    /// Returns the link of a topic, and opens one if there is none.
    async fn link(self: &Arc<ServerBusState>, topic: &TopicName) -> Result<Arc<TopicLink>, ClientError> {
        if let Some(link) = self.links.lock().by_topic.get(topic) {
            return Ok(Arc::clone(link));
        }
        let own_group = format!("guest-{}", EventId::mint(now(), rand::random(), 0));
        let group = self.group.as_ref().map_or(own_group.as_str(), Group::as_str);
        let options = SubscribeOptions {
            max_inflight: INFLIGHT_MAX,
            // Acknowledge single events, because several handles may read the same events at different speeds.
            ack_mode: Some(AckMode::Individual),
            ..SubscribeOptions::new(topic.as_str(), group)?
        };
        let group = options.group.clone();
        let subscription = self.client.subscribe(options).await?;
        let link = Arc::new(TopicLink::new(topic.clone(), group));
        let mut links = self.links.lock();
        // Remove the tasks that have ended.
        while links.tasks.try_join_next().is_some() {}
        links.tasks.spawn(Arc::clone(&link).run(Arc::clone(self), subscription));
        links.by_topic.insert(topic.clone(), Arc::clone(&link));
        Ok(link)
    }

    /// Removes a link that has ended.
    fn forget(&self, link: &Arc<TopicLink>) {
        let mut links = self.links.lock();
        if links.by_topic.get(link.topic()).is_some_and(|other| Arc::ptr_eq(other, link)) {
            links.by_topic.remove(link.topic());
        }
        links.by_subscription.retain(|_, other| !Arc::ptr_eq(other, link));
    }

    /// Deletes a group that only this guest has used.
    async fn delete_own_group(self: &Arc<ServerBusState>, topic: &TopicName, group: &Group) {
        if self.group.is_some() {
            return;
        }
        let (shared, path) = (Arc::clone(self), format!("/topics/{topic}/groups/{group}"));
        let asked = tokio::task::spawn_blocking(move || shared.http.request(Method::DELETE, &path, "")).await;
        let reason = match asked {
            Ok(Ok(_)) => return,
            Ok(Err(failure)) => failure.message().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(%topic, %group, reason, "the guest's group was not deleted: `millrace topics delete-group` does it");
    }
}

impl std::fmt::Debug for ServerBusState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerBusState").field("group", &self.group).finish_non_exhaustive()
    }
}

fn topic_name(topic: &[u8]) -> Result<TopicName, BusError> {
    let text = std::str::from_utf8(topic).map_err(|_| BusError::Refused("the topic is not UTF-8".into()))?;
    TopicName::new(text).map_err(|error| BusError::Refused(error.to_string()))
}

fn bus_error(error: &ClientError) -> BusError {
    match error {
        ClientError::Refused(refusal) if refusal.code == ErrorCode::Forbidden => BusError::TopicDenied,
        ClientError::Unreachable { .. } | ClientError::Disconnected(_) | ClientError::Closed => {
            BusError::Unavailable(error.to_string())
        }
        _ => BusError::Refused(error.to_string()),
    }
}
