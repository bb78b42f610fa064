//! How a connection ends, and the last words it gets.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use millrace_wire::FrameError;
use tokio_tungstenite::tungstenite::Error as SocketError;

/// Last words are given this long to get out.
const LAST_WORDS_MS: u64 = 1000;
/// A peer that was told to go may still be sending: its messages are thrown away for a while, because closing a socket
/// with unread data takes the last words back.
const LINGER_MS: u64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer said goodbye or vanished: there is nobody to talk to.
    Gone,
    /// It did not read, or gave no sign of life.
    Dropped(&'static str),
    InvalidUtf8,
    Oversize {
        bytes_max: usize,
        readable: bool,
    },
    /// It broke the rules of WebSocket itself.
    BrokenProtocol,
    /// It did not say who it is.
    Unauthenticated,
    /// The server is going.
    Stopping,
}

impl End {
    /// `bytes_max` is what a frame may hold: the library's own bound is wider.
    pub(super) fn of(error: axum::Error, bytes_max: usize) -> End {
        match error.into_inner().downcast_ref::<SocketError>() {
            Some(SocketError::Utf8(_)) => End::InvalidUtf8,
            Some(SocketError::Capacity(_)) => End::Oversize { bytes_max, readable: false },
            Some(SocketError::Protocol(
                tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
            )) => End::Gone,
            Some(SocketError::Protocol(_)) => End::BrokenProtocol,
            _ => End::Gone,
        }
    }

    /// Status of the closing frame, by RFC 6455.
    fn close_frame(self) -> Option<(u16, &'static str)> {
        match self {
            End::Gone | End::Dropped(_) => None,
            End::InvalidUtf8 => Some((1007, "text frames must be UTF-8")),
            End::Oversize { .. } => Some((1009, "frame too large")),
            End::BrokenProtocol => Some((1002, "protocol error")),
            End::Unauthenticated => Some((1008, "no token was sent in time")),
            End::Stopping => Some((1001, "the server is shutting down")),
        }
    }
}

pub(super) async fn last_words(
    end: End,
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
) {
    let Some((code, reason)) = end.close_frame() else { return };
    let words = async {
        if let End::Oversize { bytes_max, .. } = end {
            let mut text = String::new();
            FrameError::too_large("frame", bytes_max).write(&mut text);
            sink.feed(Message::Text(text.into())).await?;
        }
        sink.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await
    };
    let said = tokio::time::timeout(Duration::from_millis(LAST_WORDS_MS), words).await;
    // After a failed read the library has no more to give; before, whatever still comes is thrown away.
    let readable = matches!(end, End::Stopping | End::Unauthenticated | End::Oversize { readable: true, .. });
    if readable && matches!(said, Ok(Ok(()))) {
        let until_closed = async { while let Some(Ok(_)) = stream.next().await {} };
        let _ = tokio::time::timeout(Duration::from_millis(LINGER_MS), until_closed).await;
    }
}
