//! What a load needs of a broker. Each implementation uses the broker's own client library the way its users would.

use std::future::Future;

use bytes::Bytes;

use crate::error::PeerError;

/// Clones share one connection.
pub(crate) trait LoadTarget: Clone + Send + Sync + Sized + 'static {
    type Consumer: Consumer;

    fn connect(url: &str) -> impl Future<Output = Result<Self, PeerError>> + Send;

    fn create_topic(&self, topic: &str) -> impl Future<Output = Result<(), PeerError>> + Send;

    /// Resolves when the broker has confirmed it.
    fn publish(&self, topic: &str, payload: Bytes) -> impl Future<Output = Result<(), PeerError>> + Send;

    /// Keeps about `in_flight` publishes unconfirmed while `more` says so of the number sent; answers how many were
    /// sent once all of them are confirmed.
    fn publish_many(
        &self,
        topic: &str,
        payload: Bytes,
        in_flight: usize,
        more: impl FnMut(u64) -> bool + Send,
    ) -> impl Future<Output = Result<u64, PeerError>> + Send;

    /// The only member of a group that reads the topic from its beginning.
    fn subscribe(
        &self,
        topic: &str,
        group: &str,
    ) -> impl Future<Output = Result<Self::Consumer, PeerError>> + Send;
}

pub(crate) trait Consumer: Send + 'static {
    /// Waits for an event, takes what else is there up to `max`, shows each payload, acknowledges them together and
    /// answers how many there were. None means that nothing came for a while.
    fn take(
        &mut self,
        max: usize,
        each: &mut (dyn FnMut(&[u8]) + Send),
    ) -> impl Future<Output = Result<u64, PeerError>> + Send;
}
