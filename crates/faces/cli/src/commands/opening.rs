//! Opens the store of a server. Another process may delay this without limit: the log says which process, and a signal
//! still ends the start.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use millrace_stores::{OpenError, OpenedStore, StoreOptions, StoreUrl, open_store, opening_waits_for};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

/// Opening that takes this long is logged as a warning, and again each time the elapsed time has doubled, at least
/// every `WARN_PAUSE_MAX`.
const WARN_AFTER: Duration = Duration::from_secs(1);
const WARN_PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) enum Opening {
    Done(Result<OpenedStore, OpenError>),
    /// A signal came first. The thread that opens the store keeps running; the process may end at any point of it, as
    /// if killed.
    Stopped,
}

/// Opens the store, unless `stop` is ready first.
pub(super) async fn open(
    url: &StoreUrl,
    options: StoreOptions,
    stop: impl Future<Output = ()>,
) -> Result<Opening, JoinError> {
    let to_open = url.clone();
    tokio::select! {
        opened = spawn_blocking(move || open_store(&to_open, &options)) => opened.map(Opening::Done),
        () = stop => Ok(Opening::Stopped),
        never = warn_again_and_again(url) => match never {},
    }
}

async fn warn_again_and_again(url: &StoreUrl) -> Infallible {
    let (begun, mut pause) = (Instant::now(), WARN_AFTER);
    loop {
        sleep(pause).await;
        let to_look = url.clone();
        // On a blocking thread: if the disk hangs, the start must still react to signals.
        let waits_for = spawn_blocking(move || opening_waits_for(&to_look)).await.ok().flatten();
        let (ms, store) = (begun.elapsed().as_millis() as u64, url.to_string());
        match waits_for {
            Some(waits_for) => tracing::warn!(ms, store, waits_for, "the store cannot be opened yet"),
            None => tracing::warn!(ms, store, "the store is still being opened and read"),
        }
        pause = begun.elapsed().min(WARN_PAUSE_MAX);
    }
}
