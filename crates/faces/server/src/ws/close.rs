//! How a connection ends, and its close handshake: the frames that are sent before it is closed.

use std::borrow::Cow;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt};
use millrace_wire::{FrameError, MOVED_CLOSE_CODE};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::access::GrantEnd;
use crate::moved::Moved;
use crate::socket::Stream;

/// How long the closing frame may take to be written.
const CLOSE_HANDSHAKE_MS: u64 = 1000;
/// A peer that was told to go may still be sending. Its data is read and discarded for a while: closing a socket with
/// unread data resets it, and a reset would discard the closing frame.
const LINGER_MS: u64 = 500;
/// The same for a peer in the middle of a frame that is too large. Many clients do not look for an answer before they
/// have sent all of it, so all of it is read, within these bounds: total time, time without a byte, bytes.
const OVERSIZE_LINGER_MS: u64 = 60_000;
const OVERSIZE_IDLE_MS: u64 = 5000;
const OVERSIZE_BYTES_MAX: usize = 256 << 20;
const SCRATCH_BYTES: usize = 64 << 10;

/// Reason for closing a connection of the caller that has most of them.
pub(crate) const ABOVE_SHARE: &str = "another caller needs a place, and none has more than this one";
/// Reason for closing a connection that has sent a part of a large frame.
pub(crate) const INCOMPLETE_FRAME: &str =
    "too much memory is taken by incomplete frames, most of it by this caller";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WsEnd {
    /// The peer vanished: there is nobody to talk to.
    Gone,
    /// The peer sent a closing frame; the library has the reply ready.
    Goodbye,
    /// The peer did not read, or gave no sign of life.
    Dropped(&'static str),
    InvalidUtf8,
    Oversize {
        bytes_max: usize,
    },
    /// The peer broke the rules of WebSocket itself.
    BrokenProtocol,
    /// A frame larger than a connection may send before it has authenticated.
    UnauthenticatedOversize {
        bytes_max: usize,
    },
    /// The peer did not authenticate in time.
    Unauthenticated,
    /// Others need the connection's place. Holds the reason for the closing frame.
    Crowded(&'static str),
    /// An administrator closed the connection.
    Disconnected,
    /// The peer's first message did not authenticate it. An answer said why; this is the reason for the closing frame.
    SentAway(&'static str),
    /// The token or certificate of the connection is no longer accepted.
    Ended(GrantEnd),
    /// The server is stopping.
    Stopping,
    /// Another server leads.
    Moved(Moved),
}

impl WsEnd {
    /// The end that an error of the socket leads to. `bytes_max` is the size of the largest allowed frame.
    pub(crate) fn of(error: &SocketError, bytes_max: usize) -> WsEnd {
        match error {
            SocketError::Utf8(_) => WsEnd::InvalidUtf8,
            SocketError::Capacity(_) => WsEnd::Oversize { bytes_max },
            SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => WsEnd::Gone,
            SocketError::Protocol(_) => WsEnd::BrokenProtocol,
            _ => WsEnd::Gone,
        }
    }

    /// The same for a connection that has not authenticated.
    pub(crate) fn of_unauthenticated(error: &SocketError, bytes_max: usize) -> WsEnd {
        match WsEnd::of(error, bytes_max) {
            WsEnd::Oversize { bytes_max } => WsEnd::UnauthenticatedOversize { bytes_max },
            end => end,
        }
    }

    /// Whether the server closed the connection for reasons of its own, so that the peer has not failed.
    pub(crate) fn is_eviction(&self) -> bool {
        matches!(
            self,
            WsEnd::Crowded(_) | WsEnd::Disconnected | WsEnd::Ended(_) | WsEnd::Stopping | WsEnd::Moved(_)
        )
    }

    /// The error frame of the bus that is sent before the closing frame.
    pub(crate) fn frame(&self) -> Option<String> {
        let error = match self {
            WsEnd::Oversize { bytes_max } => FrameError::too_large("frame", *bytes_max),
            WsEnd::UnauthenticatedOversize { bytes_max } => {
                FrameError::too_large("frame before AUTH", *bytes_max)
            }
            WsEnd::Moved(moved) => moved.frame(),
            _ => return None,
        };
        let mut text = String::new();
        error.write(&mut text);
        Some(text)
    }

    /// Status and reason of the closing frame, by RFC 6455.
    fn close_frame(&self) -> Option<(u16, Cow<'static, str>)> {
        let (code, reason) = match self {
            WsEnd::Gone | WsEnd::Goodbye | WsEnd::Dropped(_) => return None,
            WsEnd::InvalidUtf8 => (1007, "text frames must be UTF-8"),
            WsEnd::Oversize { .. } | WsEnd::UnauthenticatedOversize { .. } => (1009, "frame too large"),
            WsEnd::BrokenProtocol => (1002, "protocol error"),
            WsEnd::Unauthenticated => (1008, "no token was sent in time"),
            WsEnd::Crowded(why) => (1013, *why),
            WsEnd::Disconnected => (1013, "an administrator closed this connection"),
            WsEnd::SentAway(why) => (1008, *why),
            WsEnd::Ended(end) => (1008, end.as_str()),
            WsEnd::Stopping => (1001, "the server is shutting down"),
            WsEnd::Moved(moved) => return Some((MOVED_CLOSE_CODE, moved.close_reason().into())),
        };
        Some((code, reason.into()))
    }
}

/// Sends the closing frame and closes the socket. `frame` goes before the closing frame. `closing` (the server is
/// stopping) cuts short the wait for the peer.
pub(crate) async fn close_handshake<S: AsyncRead + AsyncWrite + Unpin + Into<Stream>>(
    end: WsEnd,
    frame: Option<String>,
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    stream: SplitStream<WebSocketStream<S>>,
    mut closing: watch::Receiver<bool>,
) {
    if matches!(end, WsEnd::Gone | WsEnd::Dropped(_)) {
        return;
    }
    let writing = async {
        if let Some(frame) = frame {
            sink.feed(Message::Text(frame.into())).await?;
        }
        match end.close_frame() {
            Some((code, reason)) => {
                let reason = reason.into_owned().into();
                sink.send(Message::Close(Some(CloseFrame { code: code.into(), reason }))).await
            }
            None => sink.flush().await,
        }
    };
    let written = timeout(Duration::from_millis(CLOSE_HANDSHAKE_MS), writing).await;
    let Ok(socket) = sink.reunite(stream) else { return };
    if !matches!(written, Ok(Ok(()))) {
        return;
    }
    let mut stream: Stream = socket.into_inner().into();
    // The peer learns at once that nothing more will come, and closes. With TLS this writes, so it may wait.
    let shutdown = timeout(Duration::from_millis(CLOSE_HANDSHAKE_MS), stream.shutdown()).await;
    if !matches!(shutdown, Ok(Ok(()))) {
        return;
    }
    if let WsEnd::Oversize { .. } = end {
        let all = timeout(Duration::from_millis(OVERSIZE_LINGER_MS), discard(&mut stream));
        tokio::select! {
            _ = all => return,
            () = closing.wait_for(|closing| *closing).map(drop) => {}
        }
    }
    let _ = timeout(Duration::from_millis(LINGER_MS), discard(&mut stream)).await;
}

/// Discards what arrives until the peer closes, pauses or has sent more than `OVERSIZE_BYTES_MAX`.
async fn discard(stream: &mut Stream) {
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut left = OVERSIZE_BYTES_MAX;
    while left > 0 {
        match timeout(Duration::from_millis(OVERSIZE_IDLE_MS), stream.read(&mut scratch)).await {
            Ok(Ok(bytes)) if bytes > 0 => left = left.saturating_sub(bytes),
            _ => return,
        }
    }
}
