//! From an HTTP request to a WebSocket (RFC 6455, section 4.2).
//!
//! Not done by axum, whose socket hides the stream below it: the data of a peer that sends too much must be read and
//! discarded, or closing would reset the connection and lose the answer.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use millrace_wire::ErrorCode;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::accept::Io;
use crate::access::Caller;
use crate::edge::Edge;
use crate::refusal::Refusal;
use crate::socket::Stream;
use crate::ws::metered::Metered;
use crate::ws::small_reads::SmallReads;

const READ_BUFFER_BYTES: usize = 32 << 10;
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// Bytes that the library may hold unwritten, in frames of the largest size.
const WRITE_BUFFERS_MAX: usize = 4;

pub(crate) type Socket = WebSocketStream<Metered>;

/// A request that may become a WebSocket.
pub(crate) struct Upgrade {
    accept_key: String,
    pending: OnUpgrade,
}

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Upgrade, Refusal> {
        let refuse = |why: &str| {
            let detail = format!("this is a WebSocket address: {why}");
            Refusal::new(ErrorCode::BadFrame, detail).status(StatusCode::UPGRADE_REQUIRED)
        };
        let headers = &parts.headers;
        if parts.method != Method::GET {
            return Err(refuse("connect with GET"));
        }
        if !has_token(headers, &header::CONNECTION, "upgrade") {
            return Err(refuse("the header `connection` does not say upgrade"));
        }
        if !has_token(headers, &header::UPGRADE, "websocket") {
            return Err(refuse("the header `upgrade` does not say websocket"));
        }
        if headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
            return Err(refuse("the header `sec-websocket-version` does not say 13"));
        }
        let Some(key) = headers.get(header::SEC_WEBSOCKET_KEY) else {
            return Err(refuse("the header `sec-websocket-key` is missing"));
        };
        let accept_key = derive_accept_key(key.as_bytes());
        let Some(pending) = parts.extensions.remove::<OnUpgrade>() else {
            return Err(refuse("HTTP/1.1 is needed"));
        };
        Ok(Upgrade { accept_key, pending })
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}

impl Upgrade {
    /// Agrees to the upgrade, and runs `serve` once the response is sent.
    pub(crate) fn accept<F>(self, serve: impl FnOnce(Opened) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send,
    {
        let pending = self.pending;
        tokio::spawn(async move {
            if let Some(opened) = open(pending).await {
                serve(opened).await;
            }
        });
        let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        // Base64 is always a legal value of a header.
        if let Ok(key) = HeaderValue::from_str(&self.accept_key) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
        }
        response
    }
}

/// The stream of a connection that became a WebSocket, and the bytes read from it after the request.
pub(crate) struct Opened {
    stream: Stream,
    ahead: Vec<u8>,
}

impl Opened {
    pub(crate) fn new(stream: Stream, ahead: Vec<u8>) -> Opened {
        Opened { stream, ahead }
    }

    /// Makes the socket of a known caller. Frames and messages above `frame_bytes_max` end the reading; incomplete ones
    /// are accounted to the caller.
    pub(crate) async fn whole(self, edge: &Edge, caller: &Caller) -> Socket {
        let config = config(READ_BUFFER_BYTES, WRITE_BUFFER_BYTES, edge.settings.frame_bytes_max);
        let stream = Metered::new(self.stream, edge.frames.meter(caller.key()));
        WebSocketStream::from_partially_read(stream, self.ahead, Role::Server, Some(config)).await
    }

    /// The same for a connection that has not authenticated: its buffers are no larger than its frames.
    pub(crate) async fn small(self, bytes_max: usize) -> WebSocketStream<SmallReads> {
        let stream = SmallReads::new(self.stream, self.ahead);
        WebSocketStream::from_raw_socket(stream, Role::Server, Some(config(bytes_max, 0, bytes_max))).await
    }
}

fn config(read_buffer_bytes: usize, write_buffer_bytes: usize, bytes_max: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(read_buffer_bytes)
        .write_buffer_size(write_buffer_bytes)
        // Replies to pings are not bounded by the outbox: this limit ends a peer that sends pings and never reads.
        .max_write_buffer_size(WRITE_BUFFERS_MAX * bytes_max)
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
}

async fn open(pending: OnUpgrade) -> Option<Opened> {
    let upgraded = match pending.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            tracing::debug!(%error, "a connection ended before it became a WebSocket");
            return None;
        }
    };
    let Ok(parts) = upgraded.downcast::<Io>() else {
        tracing::error!("a WebSocket came over a stream that this server did not accept");
        return None;
    };
    Some(Opened { stream: parts.io.into_inner().into_inner(), ahead: parts.read_buf.to_vec() })
}
