//! The bounds on unconfirmed publishes: their number and their bytes.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ClientError;
use crate::options::ClientOptions;

#[derive(Clone, Debug)]
pub(crate) struct PublishRoom {
    count: Arc<Semaphore>,
    kibibytes: Arc<Semaphore>,
    kibibytes_max: u32,
}

/// Permits of one publish, held until it is answered.
#[derive(Debug)]
pub(crate) struct RoomTaken {
    _count: OwnedSemaphorePermit,
    _kibibytes: OwnedSemaphorePermit,
}

impl PublishRoom {
    pub(crate) fn new(options: &ClientOptions) -> PublishRoom {
        let kibibytes_max =
            (options.publish_bytes_inflight_max / 1024).clamp(1, Semaphore::MAX_PERMITS.min(1 << 30));
        PublishRoom {
            count: Arc::new(Semaphore::new(options.publishes_inflight_max.clamp(1, Semaphore::MAX_PERMITS))),
            kibibytes: Arc::new(Semaphore::new(kibibytes_max)),
            kibibytes_max: kibibytes_max as u32,
        }
    }

    /// Waits for room: first for a permit of the number, then for permits of the bytes, always in this order. Both
    /// semaphores are fair, so waiting publishes are served in turn.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<RoomTaken, ClientError> {
        let kibibytes = (bytes / 1024).clamp(1, self.kibibytes_max as usize) as u32;
        let count = self.count.clone().acquire_owned().await;
        let kibibytes = self.kibibytes.clone().acquire_many_owned(kibibytes).await;
        match (count, kibibytes) {
            (Ok(count), Ok(kibibytes)) => Ok(RoomTaken { _count: count, _kibibytes: kibibytes }),
            _ => Err(ClientError::Closed),
        }
    }
}
