//! A bus inside this program: guests that share it receive one another's events, and their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::port::{BusError, BusEvent, BusPort, BusSubscriber, Offered, SubscriptionId};
use crate::wait::Waiter;

/// Nothing is stored: an event goes to those who are subscribed when it is published. A subscriber that has no room
/// loses the event, and is not counted.
#[derive(Debug)]
pub struct LocalBus {
    state: Mutex<LocalState>,
    subscriptions_max: usize,
}

#[derive(Debug, Default)]
struct LocalState {
    last_id: u32,
    topics: BTreeMap<Vec<u8>, BTreeMap<SubscriptionId, Arc<dyn BusSubscriber>>>,
    topic_of: BTreeMap<SubscriptionId, Vec<u8>>,
}

impl LocalBus {
    /// `subscriptions_max` bounds the subscriptions of all guests: [`BusError::TooManySubscriptions`].
    pub fn new(subscriptions_max: usize) -> LocalBus {
        LocalBus { state: Mutex::default(), subscriptions_max }
    }

    /// Delivers in the order of the subscriptions. Returns the number of subscribers that received the event. The lock
    /// is not held meanwhile: a slow subscriber delays only this publisher.
    pub fn publish(&self, event: &BusEvent<'_>) -> u32 {
        let subscribers: Vec<_> = match self.state.lock().topics.get(event.topic) {
            Some(subscribers) => subscribers.iter().map(|(id, to)| (*id, Arc::clone(to))).collect(),
            None => Vec::new(),
        };
        let takes = |(id, to): &&(SubscriptionId, Arc<dyn BusSubscriber>)| {
            let offered = to.offer(*id, event, None);
            if offered == Offered::NoRoom {
                let topic = String::from_utf8_lossy(event.topic);
                tracing::debug!(subscription = id.0, %topic, "a guest that does not read has lost an event");
            }
            offered == Offered::Taken
        };
        u32::try_from(subscribers.iter().filter(takes).count()).unwrap_or(u32::MAX)
    }
}

impl Default for LocalBus {
    fn default() -> Self {
        LocalBus::new(1 << 16)
    }
}

impl BusPort for LocalBus {
    fn next_subscription(&self) -> Result<SubscriptionId, BusError> {
        let mut state = self.state.lock();
        state.last_id = state.last_id.checked_add(1).ok_or(BusError::TooManySubscriptions)?;
        Ok(SubscriptionId(state.last_id))
    }

    fn subscribe(
        &self,
        subscription: SubscriptionId,
        topic: &[u8],
        subscriber: Arc<dyn BusSubscriber>,
        _: &Waiter,
    ) -> Result<(), BusError> {
        let mut state = self.state.lock();
        if state.topic_of.len() >= self.subscriptions_max {
            return Err(BusError::TooManySubscriptions);
        }
        state.topics.entry(topic.to_vec()).or_default().insert(subscription, subscriber);
        state.topic_of.insert(subscription, topic.to_vec());
        Ok(())
    }

    fn unsubscribe(&self, subscription: SubscriptionId) {
        let mut state = self.state.lock();
        let Some(topic) = state.topic_of.remove(&subscription) else { return };
        if let Some(subscribers) = state.topics.get_mut(&topic) {
            subscribers.remove(&subscription);
            if subscribers.is_empty() {
                state.topics.remove(&topic);
            }
        }
    }

    fn publish(&self, event: &BusEvent<'_>, _: &Waiter) -> Result<u32, BusError> {
        Ok(LocalBus::publish(self, event))
    }
}
