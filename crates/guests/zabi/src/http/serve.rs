//! Connections and requests, on the HTTP thread.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use millrace_reactor::zcl1::{FRAME_BYTES_MAX, HEADER_BYTES};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

use super::body::ResponseBody;
use super::exchange::{AcceptedResponse, Exchange, GuestResponse, STREAM_FIELD_BYTES};
use super::messages::{encode_inline_body, encode_request};
use super::request_body::{RequestBody, read_body, request_stream};

/// How long a client may take for the head of its request, and then for a body that is sent inline.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
const BODY_TIME_MAX: Duration = Duration::from_secs(60);
const HEADERS_MAX: usize = 128;
const HEAD_BYTES_MAX: usize = 65_536 + 8192;
const URI_BYTES_MAX: usize = 8192;
/// Pause after an accept that failed, for example because there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until the task is aborted.
pub(super) async fn accept(listener: std::net::TcpListener, id: u32, exchange: Arc<Exchange>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener of a guest could not be used");
            return;
        }
    };
    loop {
        // Without a permit, connections wait in the backlog.
        let Ok(permit) = Arc::clone(&exchange.connections).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let exchange = Arc::clone(&exchange);
                tokio::spawn(async move {
                    serve(stream, peer, id, exchange).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to a guest was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one request.
async fn serve(stream: TcpStream, peer: SocketAddr, listener: u32, exchange: Arc<Exchange>) {
    // The response counts as on its way until the connection ends.
    let on_its_way = Mutex::new(None);
    let service = service_fn(|request| answer(request, peer, listener, &exchange, &on_its_way));
    let served = http1::Builder::new()
        .keep_alive(false)
        // A client that has closed its sending direction still gets its response.
        .half_close(true)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to a guest ended early");
    }
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    listener: u32,
    exchange: &Arc<Exchange>,
    on_its_way: &Mutex<Option<OwnedSemaphorePermit>>,
) -> Result<Response<ResponseBody>, Infallible> {
    let is_head = request.method() == Method::HEAD;
    let response = match offer(request, peer, listener, exchange).await {
        Ok(AcceptedResponse { response: GuestResponse { head, body }, on_its_way: permit }) => {
            *on_its_way.lock() = permit;
            let mut response = Response::new(body);
            *response.status_mut() = head.status;
            *response.headers_mut() = head.headers;
            // For other methods the length is that of the body.
            if let Some(length) = head.content_length.filter(|_| is_head) {
                response.headers_mut().insert(CONTENT_LENGTH, length);
            }
            response
        }
        Err(status) => {
            let mut response = Response::new(ResponseBody::Whole(None));
            *response.status_mut() = status;
            response
        }
    };
    Ok(response)
}

/// Returns the guest's response, or the status with which the host responds itself.
async fn offer(
    request: Request<Incoming>,
    peer: SocketAddr,
    listener: u32,
    exchange: &Arc<Exchange>,
) -> Result<AcceptedResponse, StatusCode> {
    let (parts, body) = request.into_parts();
    let uri_bytes = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if uri_bytes > URI_BYTES_MAX {
        return Err(StatusCode::URI_TOO_LONG);
    }
    let mut payload = encode_request(listener, peer, &parts);
    // Guests read frames of at most 64 KiB.
    let room = FRAME_BYTES_MAX.checked_sub(HEADER_BYTES + payload.len() + STREAM_FIELD_BYTES);
    let room = room.ok_or(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)?;
    let read = timeout(BODY_TIME_MAX, read_body(body, exchange.limits.body_bytes_max.min(room))).await;
    let body = read.map_err(|_| StatusCode::REQUEST_TIMEOUT)??;
    let waiting = match body {
        RequestBody::Whole(body) => {
            encode_inline_body(&mut payload, &body);
            exchange.offer(payload, None)
        }
        RequestBody::Long { first, rest } => {
            let (sender, handle) = request_stream(exchange.limits.body_chunks_max, exchange.new_source());
            let waiting = exchange.offer(payload, Some(handle));
            if waiting.is_some() {
                tokio::spawn(sender.forward(first, rest));
            }
            waiting
        }
    };
    let waiting = waiting.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    waiting.response().await.ok_or(StatusCode::SERVICE_UNAVAILABLE)
}
