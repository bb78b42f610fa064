//! The operations of a broker that the loads need. Each implementation uses the broker's own client library the way its
//! users would.

use std::future::Future;

use bytes::Bytes;

use crate::error::PeerError;

/// A topic that a load will use.
#[derive(Clone, Copy)]
pub(crate) struct Topic<'a> {
    pub(crate) name: &'a str,
    /// The groups that will read it.
    pub(crate) groups: &'a [String],
    /// Whether the groups wait for events while they are published, or read them later, if at all.
    pub(crate) has_waiting_consumers: bool,
}

/// A connection to a broker; clones share it.
pub(crate) trait LoadTarget: Clone + Send + Sync + Sized + 'static {
    type Consumer: Consumer;

    fn connect(url: &str) -> impl Future<Output = Result<Self, PeerError>> + Send;

    fn create_topic(&self, topic: Topic<'_>) -> impl Future<Output = Result<(), PeerError>> + Send;

    /// Resolves when the broker has confirmed the event.
    fn publish(&self, topic: &str, payload: Bytes) -> impl Future<Output = Result<(), PeerError>> + Send;

    /// Keeps about `in_flight` publishes unconfirmed while `more` returns true for the number sent. Returns how many
    /// were sent, once all of them are confirmed.
    fn publish_many(
        &self,
        topic: &str,
        payload: Bytes,
        in_flight: usize,
        more: impl FnMut(u64) -> bool + Send,
    ) -> impl Future<Output = Result<u64, PeerError>> + Send;

    /// Subscribes as the only member of a group that reads the topic from its beginning.
    fn subscribe(
        &self,
        topic: &str,
        group: &str,
    ) -> impl Future<Output = Result<Self::Consumer, PeerError>> + Send;
}

pub(crate) trait Consumer: Send + 'static {
    /// Waits for an event, takes further ones that are there, up to `max`, passes each payload to `each`, acknowledges
    /// them together and returns their number. 0 means that nothing came for a while.
    fn receive(
        &mut self,
        max: usize,
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> impl Future<Output = Result<u64, PeerError>> + Send;
}
