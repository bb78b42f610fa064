//! Accepting connections, each with its share of the bound and limits on how long a request may take to arrive and an
//! answer to be read. When all places are taken, one that only waits for a request makes room.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::access::Peer;
use crate::settings::ServerSettings;
use crate::socket::{PatientSocket, Stream};
use crate::tls::Certificate;
use crate::waiting::{Place, Waiting};

/// Pause after an accept that failed for want of descriptors or memory: at once it would fail again.
const ACCEPT_RETRY_MS: u64 = 100;
/// How long one that was told to make room may take, before the next one is told too: it may have an answer to finish.
const MAKE_ROOM_MS: u64 = 50;

/// What a connection is read from and written to; an upgrade gets it back.
pub(crate) type Io = TokioIo<PatientSocket>;

/// What every connection needs.
pub(crate) struct Accept {
    pub(crate) router: Router,
    pub(crate) tls: Option<Arc<Certificate>>,
    pub(crate) settings: ServerSettings,
}

/// Accepts until told to stop, then lets requests in hand finish.
pub(crate) async fn run(listener: TcpListener, accept: Accept, mut stopping: watch::Receiver<bool>) {
    let connections_max = accept.settings.http_connections_max.max(1);
    let room = Arc::new(Semaphore::new(connections_max));
    let waiting = Arc::new(Waiting::default());
    let each = Arc::new(accept);
    loop {
        let accept = async {
            let accepted = listener.accept().await;
            // One more than the bound, for as long as it takes to make room for it.
            let permit = if accepted.is_ok() { make_room(&room, &waiting).await } else { None };
            (accepted, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accept => accepted,
            () = stopping.wait_for(|stopping| *stopping).map(drop) => break,
        };
        match accepted {
            Ok((socket, addr)) => {
                let (each, stopping) = (each.clone(), stopping.clone());
                let place = Arc::new(waiting.arrive(addr.ip()));
                tokio::spawn(async move {
                    connection(&each, socket, addr, place, stopping).await;
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
    // All permits back means that every connection has ended or become a WebSocket.
    let _ = room.acquire_many(u32::try_from(connections_max).unwrap_or(u32::MAX)).await;
}

/// A place, if need be that of somebody who only waits for a request. Where all are being served it takes until one is
/// done. `None` only if the semaphore were closed.
async fn make_room(room: &Arc<Semaphore>, waiting: &Waiting) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(permit) = room.clone().try_acquire_owned() {
            return Some(permit);
        }
        waiting.send_one_away();
        let soon = Duration::from_millis(MAKE_ROOM_MS);
        if let Ok(permit) = tokio::time::timeout(soon, room.clone().acquire_owned()).await {
            return permit.ok();
        }
    }
}

async fn connection(
    each: &Accept,
    socket: TcpStream,
    addr: SocketAddr,
    place: Arc<Place>,
    stopping: watch::Receiver<bool>,
) {
    // Answers are written whole; without this they would wait for the peer's delayed acknowledgement.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let Some(tls) = &each.tls else {
        return serve(each, Stream::Plain(socket), addr, place, stopping).await;
    };
    let limit = Duration::from_millis(each.settings.request_read_ms_max);
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(limit, tls.acceptor().accept(socket)) => shaken,
        () = place.told_to_go() => return,
    };
    match shaken {
        Ok(Ok(socket)) => serve(each, Stream::Tls(Box::new(socket)), addr, place, stopping).await,
        // A stranger's doing, like anything below that is not HTTP.
        Ok(Err(error)) => tracing::debug!(%addr, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%addr, "a TLS handshake took too long"),
    }
}

async fn serve(
    each: &Accept,
    stream: Stream,
    addr: SocketAddr,
    place: Arc<Place>,
    mut stopping: watch::Receiver<bool>,
) {
    let patience = Duration::from_millis(each.settings.response_write_ms_max);
    let io: Io = TokioIo::new(PatientSocket::new(stream, patience));
    let service = WithPeer {
        peer: Peer::new(addr, each.settings.connection_rate),
        router: TowerToHyperService::new(each.router.clone()),
        place: place.clone(),
    };
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
        () = place.told_to_go() => {
            // Nothing is owed to a connection without a request, however much of one has come.
            if !place.has_served() {
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // What goes wrong here is the peer's doing: it vanished, or spoke something else than HTTP.
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

/// Tells every request which connection it came over, and the connection that it has one.
struct WithPeer {
    peer: Peer,
    router: TowerToHyperService<Router>,
    place: Arc<Place>,
}

type Inner = TowerToHyperService<Router>;

impl Service<hyper::Request<Incoming>> for WithPeer {
    type Response = <Inner as Service<hyper::Request<Incoming>>>::Response;
    type Error = <Inner as Service<hyper::Request<Incoming>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        self.place.serve();
        request.extensions_mut().insert(self.peer.clone());
        let (answer, place) = (self.router.call(request), self.place.clone());
        Box::pin(async move {
            let answer = answer.await;
            place.wait();
            answer
        })
    }
}
