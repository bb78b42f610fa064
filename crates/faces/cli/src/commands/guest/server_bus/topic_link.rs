//! Passes the events of one topic from the server to the handles of a guest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use millrace_client::{ClientError, Delivery, Subscription};
use millrace_model::{Group, TopicName};
use millrace_zabi::{BusEvent, BusReceipt, BusSubscriber, Offered, SubscriptionId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{ServerBusState, event_data};

/// The link of one topic. An event is acknowledged when every handle that got it has read it. A handle that is closed
/// before reading does not count; if no handle has read the event, the server gives it to the next member of the group.
#[derive(Debug)]
pub(super) struct TopicLink {
    topic: TopicName,
    group: Group,
    state: Mutex<LinkState>,
    /// Notified when something in `state` has changed, or when a handle has room again. Only the task in `run` listens.
    changed: Notify,
}

#[derive(Debug, Default)]
struct LinkState {
    subscribers: BTreeMap<SubscriptionId, Arc<dyn BusSubscriber>>,
    /// Deliveries that were read and must be acknowledged. Bounded by the number of unacknowledged deliveries that the
    /// server sends.
    read: Vec<Delivery>,
}

/// Shared by the handles that have the event and have not read it.
#[derive(Debug)]
struct Receipt {
    delivery: Option<Delivery>,
    was_read: AtomicBool,
    link: Weak<TopicLink>,
}

impl TopicLink {
    pub(super) fn new(topic: TopicName, group: Group) -> TopicLink {
        TopicLink { topic, group, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn topic(&self) -> &TopicName {
        &self.topic
    }

    pub(super) fn join(&self, subscription: SubscriptionId, subscriber: Arc<dyn BusSubscriber>) {
        self.state.lock().subscribers.insert(subscription, subscriber);
    }

    /// Removes a subscriber. The link is closed when none is left.
    pub(super) fn leave(&self, subscription: SubscriptionId) {
        self.state.lock().subscribers.remove(&subscription);
        self.changed.notify_one();
    }

    pub(super) fn leave_all(&self) {
        self.state.lock().subscribers.clear();
        self.changed.notify_one();
    }

    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Passes events on until there is no subscriber or the subscription is lost.
    pub(super) async fn run(
        self: Arc<TopicLink>,
        shared: Arc<ServerBusState>,
        mut subscription: Subscription,
    ) {
        loop {
            self.acknowledge().await;
            let next = tokio::select! {
                // The first subscriber joins before this task runs; a subscriber that leaves notifies this task.
                () = self.changed.notified() => None,
                next = subscription.next() => Some(next),
            };
            match next {
                Some(Ok(delivery)) => self.hand_out(delivery).await,
                Some(Err(error)) => return self.lose(&shared, &error),
                None => {}
            }
            if self.is_empty() {
                let opening = shared.opening.lock().await;
                // A subscriber may have joined in the meantime.
                if self.is_empty() {
                    self.close(&shared, subscription).await;
                    drop(opening);
                    return shared.delete_own_group(&self.topic, &self.group).await;
                }
            }
        }
    }

    /// Offers an event to all subscribers, and waits for those that have no room.
    async fn hand_out(self: &Arc<TopicLink>, delivery: Delivery) {
        let data = event_data::of_delivery(&delivery);
        let event = BusEvent { topic: self.topic.as_str().as_bytes(), data: &data, rid: 0 };
        if !event.fits_a_frame() {
            return self.refuse(&delivery, data.len()).await;
        }
        let receipt: Arc<dyn BusReceipt> = Arc::new(Receipt {
            delivery: Some(delivery),
            was_read: AtomicBool::new(false),
            link: Arc::downgrade(self),
        });
        let mut offered_to: Vec<SubscriptionId> = self.state.lock().subscribers.keys().copied().collect();
        loop {
            offered_to.retain(|id| {
                // The lock is not held while offering: a handle that reads the event takes it too.
                let subscriber = self.state.lock().subscribers.get(id).cloned();
                let offered = subscriber.map(|to| to.offer(*id, &event, Some(Arc::clone(&receipt))));
                offered == Some(Offered::NoRoom)
            });
            if offered_to.is_empty() {
                return;
            }
            self.changed.notified().await;
            self.acknowledge().await;
        }
    }

    /// Refuses an event that is too long for any guest. The bus retries as often as configured, then makes it a dead
    /// letter.
    async fn refuse(&self, delivery: &Delivery, bytes: usize) {
        let (topic, offset) = (&self.topic, delivery.offset().0);
        tracing::warn!(%topic, offset, bytes, "an event is too long for a frame of event/bus: it was given back");
        if let Err(error) = delivery.nack(Some("too long for a guest: 60000 bytes"), None).await {
            tracing::debug!(%topic, offset, %error, "the event will come again");
        }
    }

    /// Acknowledges what was read. An event whose acknowledgement fails is delivered again.
    async fn acknowledge(&self) {
        let read = std::mem::take(&mut self.state.lock().read);
        for delivery in read {
            if let Err(error) = delivery.ack().await {
                let (topic, offset) = (&self.topic, delivery.offset().0);
                tracing::debug!(%topic, offset, %error, "an event that the guest has read will come again");
            }
        }
    }

    async fn close(self: &Arc<TopicLink>, shared: &ServerBusState, subscription: Subscription) {
        self.acknowledge().await;
        shared.forget(self);
        if let Err(error) = subscription.unsubscribe().await {
            tracing::debug!(topic = %self.topic, %error, "the group was not left in order");
        }
    }

    /// Ends the link: the server or the connection to it is gone for good, or the server cancelled the subscription.
    fn lose(self: &Arc<TopicLink>, shared: &ServerBusState, error: &ClientError) {
        shared.forget(self);
        let subscribers = std::mem::take(&mut self.state.lock().subscribers);
        if !subscribers.is_empty() {
            tracing::warn!(topic = %self.topic, %error, "the guest hears nothing of this topic any more");
        }
        subscribers.into_iter().for_each(|(id, subscriber)| subscriber.lost(id));
    }

    fn is_empty(&self) -> bool {
        self.state.lock().subscribers.is_empty()
    }
}

impl BusReceipt for Receipt {
    fn was_read(&self) {
        self.was_read.store(true, Ordering::SeqCst);
    }
}

impl Drop for Receipt {
    /// Runs when the last handle has read the event or was closed.
    fn drop(&mut self) {
        let read = self.delivery.take().filter(|_| self.was_read.load(Ordering::SeqCst));
        if let (Some(delivery), Some(link)) = (read, self.link.upgrade()) {
            link.state.lock().read.push(delivery);
            link.changed.notify_one();
        }
    }
}
