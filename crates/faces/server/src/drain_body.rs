//! Handles request bodies that were not read because the request was refused. HTTP/1.1 cannot skip a body: either the
//! server reads and discards it, or it must close the connection and say so in the response.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use millrace_wire::ErrorCode;
use parking_lot::Mutex;

use crate::access::{Peer, Reason};
use crate::fairness::ConnectionPlace;

/// How long and up to which size the rest of a body is read: most bodies are on their way already.
const DISCARD_MS: u64 = 500;
const DISCARD_BYTES_MAX: usize = 64 << 20;

/// Middleware around every handler.
pub(crate) async fn finish(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let asks_first = asks_first(request.headers());
    let place = request.extensions().get::<Peer>().map(|peer| peer.place.clone());
    let (parts, body) = request.into_parts();
    let shared = SharedBody(Arc::new(Mutex::new(Half { body, begun: false, ended: false, place })));
    let request = Request::from_parts(parts, Body::new(shared.clone()));
    let mut response = next.run(request).await;
    if !shared.is_passed(asks_first, gives_up(&response)).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Whether the rest of the body is not waited for: a body that took too long had its time, and an overloaded server does
/// not wait for one. A server that sends its clients elsewhere is not overloaded, and they must get to see where.
fn gives_up(response: &Response) -> bool {
    let has_moved =
        response.extensions().get::<Reason>().is_some_and(|reason| reason.code == ErrorCode::Moved);
    matches!(response.status(), StatusCode::REQUEST_TIMEOUT | StatusCode::SERVICE_UNAVAILABLE) && !has_moved
}

/// Whether the client sends its body only when told to (`Expect: 100-continue`).
fn asks_first(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|expect| expect.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A body that remains accessible after a handler has dropped it.
#[derive(Clone)]
struct SharedBody(Arc<Mutex<Half>>);

struct Half {
    body: Body,
    begun: bool,
    ended: bool,
    /// Is told how much of the body has arrived.
    place: Option<Arc<ConnectionPlace>>,
}

impl SharedBody {
    /// Whether the body is out of the way, so that the next request can be read.
    async fn is_passed(&self, asks_first: bool, gives_up: bool) -> bool {
        let (begun, ended) = {
            let half = self.0.lock();
            (half.begun, half.ended || half.body.is_end_stream())
        };
        // Reading the body of a client that asks first would ask the client for it.
        if ended || asks_first && !begun || gives_up {
            return ended;
        }
        let mut rest = self.clone();
        let discard = async {
            let mut bytes = 0;
            while let Some(Ok(frame)) = rest.frame().await {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > DISCARD_BYTES_MAX {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(Duration::from_millis(DISCARD_MS), discard).await.unwrap_or(false)
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut half = self.0.lock();
        half.begun = true;
        let polled = Pin::new(&mut half.body).poll_frame(cx);
        half.ended |= matches!(polled, Poll::Ready(None));
        if let (Some(place), Poll::Ready(frame)) = (&half.place, &polled) {
            match frame {
                Some(Ok(frame)) => place.came(frame.data_ref().map_or(0, Bytes::len)),
                Some(Err(_)) => {}
                None => place.work(),
            }
            if half.body.is_end_stream() {
                place.work();
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let half = self.0.lock();
        half.ended || half.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().body.size_hint()
    }
}
