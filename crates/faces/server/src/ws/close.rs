//! How a connection ends, and the last words it gets.

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

/// Last words are given this long to get out.
const LAST_WORDS_MS: u64 = 1000;
/// A peer that was told to go may still be sending: what comes is thrown away for a while, because closing a socket
/// over unread data resets it, and a reset takes the last words back.
const LINGER_MS: u64 = 500;
/// The same for a peer in the middle of a frame that is too large. Many clients do not look for an answer before all of
/// it is sent, so all of it is taken, within these bounds: time in all, time without a byte, bytes.
const OVERSIZE_LINGER_MS: u64 = 60_000;
const OVERSIZE_IDLE_MS: u64 = 5000;
const OVERSIZE_BYTES_MAX: usize = 256 << 20;
const SCRATCH_BYTES: usize = 64 << 10;

/// For a connection of the caller that has most of them.
pub(super) const ABOVE_SHARE: &str = "another caller needs a place, and none has more than this one";
/// For a connection that has sent half of a large frame.
pub(super) const INCOMPLETE_FRAME: &str =
    "too much memory is taken by incomplete frames, most of it by this caller";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer vanished: there is nobody to talk to.
    Gone,
    /// The peer said goodbye; the library has the answer ready.
    Goodbye,
    /// It did not read, or gave no sign of life.
    Dropped(&'static str),
    InvalidUtf8,
    Oversize {
        bytes_max: usize,
    },
    /// It broke the rules of WebSocket itself.
    BrokenProtocol,
    /// A frame above what a connection may send before it has authenticated.
    UnauthenticatedOversize {
        bytes_max: usize,
    },
    /// It did not say who it is.
    Unauthenticated,
    /// Others need its place; the sentence of the closing frame.
    Crowded(&'static str),
    /// It said who it is, and may not come in. It was told why; this is the sentence of the closing frame.
    SentAway(&'static str),
    /// The token or certificate it came in with is no longer accepted.
    Ended(GrantEnd),
    /// The server is going.
    Stopping,
}

impl End {
    /// `bytes_max` is what a frame may hold.
    pub(super) fn of(error: &SocketError, bytes_max: usize) -> End {
        match error {
            SocketError::Utf8(_) => End::InvalidUtf8,
            SocketError::Capacity(_) => End::Oversize { bytes_max },
            SocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake) => End::Gone,
            SocketError::Protocol(_) => End::BrokenProtocol,
            _ => End::Gone,
        }
    }

    /// The same for a connection that has not authenticated.
    pub(super) fn of_unauthenticated(error: &SocketError, bytes_max: usize) -> End {
        match End::of(error, bytes_max) {
            End::Oversize { bytes_max } => End::UnauthenticatedOversize { bytes_max },
            end => end,
        }
    }

    /// Whether the server ended the connection for reasons of its own: whoever was served has not failed.
    pub(super) fn is_eviction(self) -> bool {
        matches!(self, End::Crowded(_) | End::Ended(_) | End::Stopping)
    }

    /// The frame of the bus that goes before the closing frame.
    pub(super) fn frame(self) -> Option<String> {
        let (what, bytes_max) = match self {
            End::Oversize { bytes_max } => ("frame", bytes_max),
            End::UnauthenticatedOversize { bytes_max } => ("frame before AUTH", bytes_max),
            _ => return None,
        };
        let mut text = String::new();
        FrameError::too_large(what, bytes_max).write(&mut text);
        Some(text)
    }

    /// Status of the closing frame, by RFC 6455.
    fn close_frame(self) -> Option<(u16, &'static str)> {
        match self {
            End::Gone | End::Goodbye | End::Dropped(_) => None,
            End::InvalidUtf8 => Some((1007, "text frames must be UTF-8")),
            End::Oversize { .. } | End::UnauthenticatedOversize { .. } => Some((1009, "frame too large")),
            End::BrokenProtocol => Some((1002, "protocol error")),
            End::Unauthenticated => Some((1008, "no token was sent in time")),
            End::Crowded(why) => Some((1013, why)),
            End::SentAway(why) => Some((1008, why)),
            End::Ended(end) => Some((1008, end.as_str())),
            End::Stopping => Some((1001, "the server is shutting down")),
        }
    }
}

/// `frame` goes before the closing frame. `closing` cuts short what is only patience with the peer.
pub(super) async fn last_words<S: AsyncRead + AsyncWrite + Unpin + Into<Stream>>(
    end: End,
    frame: Option<String>,
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    stream: SplitStream<WebSocketStream<S>>,
    mut closing: watch::Receiver<bool>,
) {
    if matches!(end, End::Gone | End::Dropped(_)) {
        return;
    }
    let words = async {
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
    let said = timeout(Duration::from_millis(LAST_WORDS_MS), words).await;
    let Ok(socket) = sink.reunite(stream) else { return };
    if !matches!(said, Ok(Ok(()))) {
        return;
    }
    let mut stream: Stream = socket.into_inner().into();
    // The peer learns at once that nothing more will come, and closes. TLS has to write for this, so it may wait.
    let shutdown = timeout(Duration::from_millis(LAST_WORDS_MS), stream.shutdown()).await;
    if !matches!(shutdown, Ok(Ok(()))) {
        return;
    }
    if let End::Oversize { .. } = end {
        let all = timeout(Duration::from_millis(OVERSIZE_LINGER_MS), discard(&mut stream));
        tokio::select! {
            _ = all => return,
            () = closing.wait_for(|closing| *closing).map(drop) => {}
        }
    }
    let _ = timeout(Duration::from_millis(LINGER_MS), discard(&mut stream)).await;
}

/// Until the peer closes, pauses or has sent more than anybody means to.
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
