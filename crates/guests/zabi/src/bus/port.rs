//! The port to a bus: the traits that a bus and its subscribers implement.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use super::messages::event_fits;
use crate::wait::{WaitError, Waiter};

/// Names a subscription: numbers from 1, which a bus never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriptionId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusEvent<'a> {
    pub topic: &'a [u8],
    pub data: &'a [u8],
    /// The number that the publishing guest gave its request; 0 for events that come from elsewhere.
    pub rid: u32,
}

impl BusEvent<'_> {
    /// Whether the event fits into a frame. Other events are never delivered.
    pub fn fits_a_frame(&self) -> bool {
        event_fits(self.topic, self.data)
    }
}

/// Why the bus refused a request. The guest gets an error frame.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BusError {
    #[error("too many subscriptions")]
    TooManySubscriptions,
    #[error("topic denied")]
    TopicDenied,
    /// The bus refused the request, and said why.
    #[error("{0}")]
    Refused(String),
    /// Whether the request was executed is not known.
    #[error("{0}")]
    NoAnswer(#[from] WaitError),
    #[error("bus not available: {0}")]
    Unavailable(String),
}

/// The fate of an event that was offered to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    Taken,
    /// The subscriber has to read before it can take more; [`BusPort::has_room_again`] then tells the bus.
    NoRoom,
    /// The subscription has ended.
    Unknown,
}

/// Told when a guest has read the event to its end. If the receipt is dropped before that, the event did not reach the
/// guest.
pub trait BusReceipt: fmt::Debug + Send + Sync {
    fn was_read(&self);
}

/// Receives events, from any thread and without blocking.
pub trait BusSubscriber: fmt::Debug + Send + Sync {
    fn offer(
        &self,
        subscription: SubscriptionId,
        event: &BusEvent<'_>,
        receipt: Option<Arc<dyn BusReceipt>>,
    ) -> Offered;

    /// The subscription has ended, not by the guest's wish: its handle hangs up, and reads return -5 once everything
    /// that is queued was read.
    fn lost(&self, subscription: SubscriptionId);
}

/// A bus as guests see it: topics are compared byte by byte.
pub trait BusPort: fmt::Debug + Send + Sync {
    /// Returns the number of the next subscription.
    ///
    /// # Errors
    ///
    /// [`BusError::TooManySubscriptions`]
    fn next_subscription(&self) -> Result<SubscriptionId, BusError>;

    /// Offers events of a topic to the subscriber from now on. A bus that has to ask another thread or server uses the
    /// waiter.
    ///
    /// # Errors
    ///
    /// [`BusError`]
    fn subscribe(
        &self,
        subscription: SubscriptionId,
        topic: &[u8],
        subscriber: Arc<dyn BusSubscriber>,
        waiter: &Waiter,
    ) -> Result<(), BusError>;

    /// Ends a subscription. An event that is being offered at this moment may still arrive.
    fn unsubscribe(&self, subscription: SubscriptionId);

    /// Called when a subscriber that had no room has read since.
    fn has_room_again(&self) {}

    /// Publishes an event. Returns to how many subscribers it was delivered, or 1 if the bus stores it for later
    /// subscribers.
    ///
    /// # Errors
    ///
    /// [`BusError`]
    fn publish(&self, event: &BusEvent<'_>, waiter: &Waiter) -> Result<u32, BusError>;
}
