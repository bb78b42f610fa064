//! Calls that block a thread other than the host's, within a bound on their number.

use std::sync::Arc;

use millrace_runs::HandlerError;
use tokio::sync::Semaphore;

/// The permits of a host for blocking calls. Files, output and input have permits of their own: calls that wait for
/// somebody who does not read or write do not delay the others.
pub(crate) struct BlockingPlaces {
    pub(crate) brief: Arc<Semaphore>,
    pub(crate) stream: Arc<Semaphore>,
    pub(crate) waiting: Arc<Semaphore>,
}

impl BlockingPlaces {
    pub(crate) fn new(calls_max: usize) -> BlockingPlaces {
        let calls_max = calls_max.clamp(1, Semaphore::MAX_PERMITS);
        BlockingPlaces {
            brief: Arc::new(Semaphore::new(calls_max)),
            stream: Arc::new(Semaphore::new(calls_max)),
            waiting: Arc::new(Semaphore::new(calls_max)),
        }
    }
}

/// Does the work on another thread once there is a permit. The work keeps its permit until it returns, even if its run
/// has ended meanwhile.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    places: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HandlerError> {
    let place = places.acquire_owned().await.map_err(|error| HandlerError::new(error.to_string()))?;
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| HandlerError::new(error.to_string()))
}
