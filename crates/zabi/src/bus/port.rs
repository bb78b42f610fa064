//! The port to a bus.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Names a subscription; from 1, never used twice by one bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriptionId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusEvent<'a> {
    pub topic: &'a [u8],
    pub data: &'a [u8],
    /// The number that the publishing guest gave its request; 0 for events that come from elsewhere.
    pub rid: u32,
}

/// Why the bus refuses. The guest gets an error frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BusError {
    #[error("too many subscriptions")]
    TooManySubscriptions,
    #[error("the topic is not allowed")]
    TopicDenied,
    #[error("the bus is not available")]
    Unavailable,
}

/// Takes events, from any thread and without blocking.
pub trait BusSubscriber: fmt::Debug + Send + Sync {
    /// Returns whether the event was taken. A subscriber that has no room refuses it, and the event is lost to it.
    fn deliver(&self, subscription: SubscriptionId, event: &BusEvent<'_>) -> bool;
}

/// A bus as guests see it: topics are compared byte by byte.
pub trait BusPort: fmt::Debug + Send + Sync {
    /// Delivers events of a topic to the subscriber from now on.
    ///
    /// # Errors
    ///
    /// [`BusError`]
    fn subscribe(&self, topic: &[u8], subscriber: Arc<dyn BusSubscriber>)
    -> Result<SubscriptionId, BusError>;

    /// Ends a subscription. An event that is being delivered at this moment may still arrive.
    fn unsubscribe(&self, subscription: SubscriptionId);

    /// Publishes an event; returns to how many subscribers it was delivered.
    ///
    /// # Errors
    ///
    /// [`BusError`]
    fn publish(&self, event: &BusEvent<'_>) -> Result<u32, BusError>;
}
