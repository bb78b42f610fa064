//! How a connection ends, and its close handshake: the frames that are sent before it is closed.

use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt};
use millrace_wire::FrameError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::access::GrantEnd;
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
pub(super) const ABOVE_SHARE: &str = "another caller needs a place, and none has more than this one";
/// Reason for closing a connection that has sent a part of a large frame.
pub(super) const INCOMPLETE_FRAME: &str =
    "too much memory is taken by incomplete frames, most of it by this caller";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WsEnd {
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
    /// The peer's first message did not authenticate it. An answer said why; this is the reason for the closing frame.
    SentAway(&'static str),
    /// The token or certificate of the connection is no longer accepted.
    Ended(GrantEnd),
    /// The server is stopping.
    Stopping,
}

impl WsEnd {
    /// The end that an error of the socket leads to. `bytes_max` is the size of the largest allowed frame.
    pub(super) fn of(error: &SocketError, bytes_max: usize) -> WsEnd {
        match error {
            SocketError::Utf8(_) => WsEnd::InvalidUtf8,
            SocketError::Capacity(_) => WsEnd::Oversize { bytes_max },
            SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => WsEnd::Gone,
            SocketError::Protocol(_) => WsEnd::BrokenProtocol,
            _ => WsEnd::Gone,
        }
    }

    /// The same for a connection that has not authenticated.
    pub(super) fn of_unauthenticated(error: &SocketError, bytes_max: usize) -> WsEnd {
        match WsEnd::of(error, bytes_max) {
            WsEnd::Oversize { bytes_max } => WsEnd::UnauthenticatedOversize { bytes_max },
            end => end,
        }
    }

    /// Whether the server closed the connection for reasons of its own, so that the peer has not failed.
    pub(super) fn is_eviction(self) -> bool {
        matches!(self, WsEnd::Crowded(_) | WsEnd::Ended(_) | WsEnd::Stopping)
    }

    /// The error frame of the bus that is sent before the closing frame.
    pub(super) fn frame(self) -> Option<String> {
        let (what, bytes_max) = match self {
            WsEnd::Oversize { bytes_max } => ("frame", bytes_max),
            WsEnd::UnauthenticatedOversize { bytes_max } => ("frame before AUTH", bytes_max),
            _ => return None,
        };
        let mut text = String::new();
        FrameError::too_large(what, bytes_max).write(&mut text);
        Some(text)
    }

    /// Status and reason of the closing frame, by RFC 6455.
    fn close_frame(self) -> Option<(u16, &'static str)> {
        match self {
            WsEnd::Gone | WsEnd::Goodbye | WsEnd::Dropped(_) => None,
            WsEnd::InvalidUtf8 => Some((1007, "text frames must be UTF-8")),
            WsEnd::Oversize { .. } | WsEnd::UnauthenticatedOversize { .. } => Some((1009, "frame too large")),
            WsEnd::BrokenProtocol => Some((1002, "protocol error")),
            WsEnd::Unauthenticated => Some((1008, "no token was sent in time")),
            WsEnd::Crowded(why) => Some((1013, why)),
            WsEnd::SentAway(why) => Some((1008, why)),
            WsEnd::Ended(end) => Some((1008, end.as_str())),
            WsEnd::Stopping => Some((1001, "the server is shutting down")),
        }
    }
}

/// Sends the closing frame and closes the socket. `frame` goes before the closing frame. `closing` (the server is
/// stopping) cuts short the wait for the peer.
pub(super) async fn close_handshake<S: AsyncRead + AsyncWrite + Unpin + Into<Stream>>(
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
                sink.send(Message::Close(Some(CloseFrame { code: code.into(), reason: reason.into() }))).await
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
