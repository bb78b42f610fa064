//! The Unix socket of the CQRS loop on a server that follows: one error line, then the connection is closed.

use std::sync::Arc;
use std::time::Duration;

use millrace_wire::os::encode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::follower::app::Via;
use crate::follower::{FollowerApp, SharedFollower};
use crate::moved::Moved;

/// Pause after an accept that failed for lack of descriptors or memory: without it, it would fail again at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long the line may take to be written, and then the client to close.
const WRITE_MAX: Duration = Duration::from_secs(1);
const LINGER: Duration = Duration::from_millis(500);
/// Bytes of the client that are read and discarded meanwhile.
const DISCARD_BYTES_MAX: usize = 1 << 20;

/// Accepts until told to stop. When all places are taken, a further connection waits for one.
pub(super) async fn run(app: SharedFollower, listener: UnixListener, mut stopping: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(app.edge.settings.kernel.connections_max.max(1)));
    loop {
        let accept = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accept => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let app = app.clone();
                tokio::spawn(async move {
                    tell(&app, stream).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection of the socket could not be accepted");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn tell(app: &FollowerApp, mut stream: UnixStream) {
    let moved = app.moved(Via::Socket);
    // With `require_auth` a leader says nothing before a token was shown: its URL is left out, too.
    let moved = if app.edge.settings.kernel.require_auth { Moved::to(None) } else { moved };
    let mut line = Vec::new();
    encode(&moved.os_message(app.mint.stamp()), &mut line);
    let written = timeout(WRITE_MAX, async {
        stream.write_all(&line).await?;
        stream.shutdown().await
    });
    if !matches!(written.await, Ok(Ok(()))) {
        tracing::debug!("a client of the socket left before it was told where the leader is");
        return;
    }
    // A client in the middle of a write would see an error instead of the line.
    let discard = async {
        let (mut scratch, mut left) = ([0; 4096], DISCARD_BYTES_MAX);
        while left > 0 {
            match stream.read(&mut scratch).await {
                Ok(bytes) if bytes > 0 => left = left.saturating_sub(bytes),
                _ => return,
            }
        }
    };
    let _ = timeout(LINGER, discard).await;
}
