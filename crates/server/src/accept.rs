//! Accepting connections, each with its share of the bound and limits on how long a request may take to arrive and an
//! answer to be read.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::settings::ServerSettings;
use crate::socket::PatientSocket;

/// Pause after an accept that failed for want of descriptors or memory: at once it would fail again.
const ACCEPT_RETRY_MS: u64 = 100;

/// Accepts until told to stop, then lets requests in hand finish.
pub(crate) async fn run(
    listener: TcpListener,
    router: Router,
    settings: ServerSettings,
    mut stopping: watch::Receiver<bool>,
) {
    let connections_max = settings.http_connections_max.max(1);
    let room = Arc::new(Semaphore::new(connections_max));
    loop {
        let accept = async {
            // The semaphore is never closed.
            let permit = room.clone().acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accept => accepted,
            () = stopping.wait_for(|stopping| *stopping).map(drop) => break,
        };
        match accepted {
            Ok((socket, _)) => {
                let connection = connection(socket, router.clone(), &settings);
                let stopping = stopping.clone();
                tokio::spawn(async move {
                    serve(connection, stopping).await;
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

async fn serve(connection: Connection, mut stopping: watch::Receiver<bool>) {
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.wait_for(|stopping| *stopping).map(drop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // What goes wrong here is the peer's doing: it vanished, or spoke something else than HTTP.
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

/// What a connection is read from and written to; an upgrade gets it back.
pub(crate) type Io = TokioIo<PatientSocket>;

type Connection = http1::UpgradeableConnection<Io, TowerToHyperService<Router>>;

fn connection(socket: TcpStream, router: Router, settings: &ServerSettings) -> Connection {
    // Answers are written whole; without this they would wait for the peer's delayed acknowledgement.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let socket = PatientSocket::new(socket, Duration::from_millis(settings.response_write_ms_max));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(settings.request_read_ms_max))
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
        .with_upgrades()
}
