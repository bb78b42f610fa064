//! Accepts connections. Each one has a place (`fairness/places.rs`) and limits on how long a request may take to arrive
//! and a response to be read. Accepting never waits for a place: when all are taken, `fairness/places.rs` chooses the
//! connection to close.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use futures_util::future::join_all;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::access::{Peer, PresentedNames};
use crate::edge::Edge;
use crate::fairness::{BodyPace, CallerKey, ConnectionPlace, PlaceBounds, Places, share_of};
use crate::settings::ServerSettings;
use crate::socket::{PatientSocket, Stream};
use crate::tls::Certificate;

/// Pause after an accept that failed for want of file descriptors or memory: an immediate retry would fail again.
const ACCEPT_RETRY_MS: u64 = 100;
/// How long a connection that was sent away (evicted) may take to write the rest of its last response.
const LEAVE_MS: u64 = 1000;
/// Evicted connections that have not closed yet. With more of them, accepting waits until some have closed.
const LEAVING_MAX: usize = 256;

/// The stream that a connection is read from and written to; an upgrade to a WebSocket gets it back.
pub(crate) type Io = TokioIo<PatientSocket>;

/// The state that all connections of one listener share.
struct Accept {
    router: Router,
    tls: Option<Arc<Certificate>>,
    settings: ServerSettings,
    places: Arc<Places>,
    /// Open connections of this listener at any moment, evicted ones included.
    sockets_max: usize,
}

impl Accept {
    /// Creates the state of one listener. Its `max` places are its own: no other listener takes any of them.
    fn new(edge: &Edge, router: Router, tls: Option<Arc<Certificate>>, max: usize) -> Accept {
        let settings = edge.settings.clone();
        let (max, waiting_max) = (max.max(1), settings.http_connections_waiting_max);
        let bounds = PlaceBounds {
            max,
            waiting_max,
            caller_max: share_of(max, settings.caller_share_percent),
            pace: BodyPace {
                patience_ms: settings.crowd_patience_ms,
                bytes_per_second: settings.crowd_bytes_per_second,
            },
        };
        let places = Places::new(bounds, edge.evictions.clone());
        Accept { router, tls, settings, places, sockets_max: http_sockets_max(max, waiting_max) }
    }
}

/// The listeners of a server, with the tasks that accept on them.
pub(crate) struct Listeners {
    tls: Option<Arc<Certificate>>,
    stop: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
}

impl Listeners {
    pub(crate) fn new(tls: Option<Arc<Certificate>>) -> Listeners {
        Listeners { tls, stop: watch::Sender::new(false), accepting: Vec::new() }
    }

    /// Accepts on one more listener, which gets `max` places of its own.
    pub(crate) fn add(&mut self, edge: &Edge, listener: TcpListener, router: Router, max: usize) {
        let accept = Accept::new(edge, router, self.tls.clone(), max);
        self.accepting.push(tokio::spawn(run(listener, accept, self.stop.subscribe())));
    }

    /// Turns true when accepting is to stop.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Stops accepting. Requests in progress go on.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until every connection has ended or become a WebSocket.
    pub(crate) async fn all_answered(self) {
        join_all(self.accepting).await;
    }
}

/// The connections of a listener together: those with a place, those without one, and evicted ones that have not
/// closed.
pub(crate) fn http_sockets_max(max: usize, waiting_max: usize) -> usize {
    max.saturating_add(waiting_max).saturating_add(LEAVING_MAX)
}

/// Accepts until told to stop, then waits for the requests in progress.
async fn run(listener: TcpListener, accept: Accept, mut stopping: watch::Receiver<bool>) {
    let sockets = Arc::new(Semaphore::new(accept.sockets_max));
    let each = Arc::new(accept);
    loop {
        let accept = async {
            let permit = sockets.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accept => accepted,
            () = stopping.wait_for(|stopping| *stopping).map(drop) => break,
        };
        match accepted {
            Ok((socket, addr)) => {
                let (each, stopping) = (each.clone(), stopping.clone());
                let place = each.places.arrive(CallerKey::of_address(addr.ip()));
                tokio::spawn(async move {
                    connection(&each, socket, addr, place.clone(), stopping).await;
                    // Explicitly, not when `place` is dropped: a WebSocket that came of this connection keeps its
                    // `Peer`, which holds the place, and has a seat of its own (`fairness/seats.rs`).
                    place.leave();
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
            }
        }
    }
    drop(listener);
    // When all permits are back, every connection has ended or become a WebSocket.
    let _ = sockets.acquire_many(u32::try_from(each.sockets_max).unwrap_or(u32::MAX)).await;
}

async fn connection(
    each: &Accept,
    socket: TcpStream,
    addr: SocketAddr,
    place: Arc<ConnectionPlace>,
    stopping: watch::Receiver<bool>,
) {
    // Responses are written whole; without TCP_NODELAY they would wait for the peer's delayed acknowledgement.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let Some(tls) = &each.tls else {
        let peer = Peer::new(addr, PresentedNames::default(), place.clone(), each.settings.connection_rate);
        return serve(each, Stream::Plain(socket), peer, place, stopping).await;
    };
    let limit = Duration::from_millis(each.settings.request_read_ms_max);
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(limit, tls.acceptor().accept(socket)) => shaken,
        _ = place.sent_away() => return,
    };
    match shaken {
        Ok(Ok(socket)) => {
            let names = PresentedNames::of(socket.get_ref().1.peer_certificates());
            let peer = Peer::new(addr, names, place.clone(), each.settings.connection_rate);
            serve(each, Stream::Tls(Box::new(socket)), peer, place, stopping).await;
        }
        // Only logged at debug level: the peer caused it, like everything below that is not HTTP.
        Ok(Err(error)) => tracing::debug!(%addr, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%addr, "a TLS handshake took too long"),
    }
}

async fn serve(
    each: &Accept,
    stream: Stream,
    peer: Peer,
    place: Arc<ConnectionPlace>,
    mut stopping: watch::Receiver<bool>,
) {
    let patience = Duration::from_millis(each.settings.response_write_ms_max);
    let io: Io = TokioIo::new(PatientSocket::new(stream, patience, place.clone()));
    let service =
        WithPeer { peer, router: TowerToHyperService::new(each.router.clone()), place: place.clone() };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(each.settings.request_read_ms_max))
        .serve_connection(io, service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.wait_for(|stopping| *stopping).map(drop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        _ = place.sent_away() => {
            // A connection that never completed a request gets no response, however much of one it has sent.
            if !place.has_served() {
                return;
            }
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(Duration::from_millis(LEAVE_MS), connection).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    // Errors here are the peer's doing: it vanished, or did not speak HTTP.
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

/// Tells every request which connection it came over, and tells the connection's place when a request begins and ends.
struct WithPeer {
    peer: Peer,
    router: TowerToHyperService<Router>,
    place: Arc<ConnectionPlace>,
}

type Inner = TowerToHyperService<Router>;

impl Service<hyper::Request<Incoming>> for WithPeer {
    type Response = <Inner as Service<hyper::Request<Incoming>>>::Response;
    type Error = <Inner as Service<hyper::Request<Incoming>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.place.request(!request.body().is_end_stream());
        request.extensions_mut().insert(self.peer.clone());
        let (answer, place) = (self.router.call(request), self.place.clone());
        Box::pin(async move {
            let answer = answer.await;
            place.answered();
            answer
        })
    }
}
