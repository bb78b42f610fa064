//! Opening the store of a server. Another process may hold it up for as long as it likes: the log says who, and a signal
//! still ends the start.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use millrace_server::SqliteOptions;
use millrace_stores::{OpenError, OpenedStore, StoreUrl, open_store, opening_waits_for};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::sleep;

/// A start that takes this long is warned of, and again whenever it has taken twice as long, up to `WARN_PAUSE_MAX`.
const WARN_AFTER: Duration = Duration::from_secs(1);
const WARN_PAUSE_MAX: Duration = Duration::from_secs(60);

pub(super) enum Opening {
    Done(Result<OpenedStore, OpenError>),
    /// The thread that opens the store is left behind. Wherever it is, the process may end: it is as if it were killed.
    Stopped,
}

/// Opens the store, unless `stop` comes first.
pub(super) async fn open(
    url: &StoreUrl,
    options: SqliteOptions,
    stop: impl Future<Output = ()>,
) -> Result<Opening, JoinError> {
    let to_open = url.clone();
    tokio::select! {
        opened = spawn_blocking(move || open_store(&to_open, options)) => opened.map(Opening::Done),
        () = stop => Ok(Opening::Stopped),
        never = warn_again_and_again(url) => match never {},
    }
}

async fn warn_again_and_again(url: &StoreUrl) -> Infallible {
    let (begun, mut pause) = (Instant::now(), WARN_AFTER);
    loop {
        sleep(pause).await;
        let to_look = url.clone();
        // On a thread that may wait: a disk that hangs must not make the start deaf.
        let waits_for = spawn_blocking(move || opening_waits_for(&to_look)).await.ok().flatten();
        let (ms, store) = (begun.elapsed().as_millis() as u64, url.to_string());
        match waits_for {
            Some(waits_for) => tracing::warn!(ms, store, waits_for, "the store cannot be opened yet"),
            None => tracing::warn!(ms, store, "the store is still being opened and read"),
        }
        pause = begun.elapsed().min(WARN_PAUSE_MAX);
    }
}
