//! A bus inside this program: guests that share it hear one another, and themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::port::{BusError, BusEvent, BusPort, BusSubscriber, SubscriptionId};

/// Nothing is kept: an event goes to those who are subscribed when it is published.
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

    fn state(&self) -> MutexGuard<'_, LocalState> {
        // No code under this lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for LocalBus {
    fn default() -> Self {
        LocalBus::new(1 << 16)
    }
}

impl BusPort for LocalBus {
    fn subscribe(
        &self,
        topic: &[u8],
        subscriber: Arc<dyn BusSubscriber>,
    ) -> Result<SubscriptionId, BusError> {
        let mut state = self.state();
        if state.topic_of.len() >= self.subscriptions_max {
            return Err(BusError::TooManySubscriptions);
        }
        let last_id = state.last_id.checked_add(1).ok_or(BusError::TooManySubscriptions)?;
        state.last_id = last_id;
        let id = SubscriptionId(last_id);
        state.topics.entry(topic.to_vec()).or_default().insert(id, subscriber);
        state.topic_of.insert(id, topic.to_vec());
        Ok(id)
    }

    fn unsubscribe(&self, subscription: SubscriptionId) {
        let mut state = self.state();
        let Some(topic) = state.topic_of.remove(&subscription) else { return };
        if let Some(subscribers) = state.topics.get_mut(&topic) {
            subscribers.remove(&subscription);
            if subscribers.is_empty() {
                state.topics.remove(&topic);
            }
        }
    }

    /// Delivers in the order of the subscriptions. The lock is not held meanwhile: a subscriber that takes long delays
    /// only this publisher.
    fn publish(&self, event: &BusEvent<'_>) -> Result<u32, BusError> {
        let subscribers: Vec<_> = match self.state().topics.get(event.topic) {
            Some(subscribers) => subscribers.iter().map(|(id, to)| (*id, Arc::clone(to))).collect(),
            None => Vec::new(),
        };
        let delivered = subscribers.iter().filter(|(id, to)| to.deliver(*id, event)).count();
        Ok(u32::try_from(delivered).unwrap_or(u32::MAX))
    }
}
