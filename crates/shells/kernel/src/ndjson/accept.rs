//! Accepts connections and serves each one to its end.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use millrace_router::Input;
use millrace_wire::os::{OsRefusal, encode};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_local;

use crate::clients::conns::Out;
use crate::ndjson::edge::Edge;
use crate::ndjson::reader::LineReader;
use crate::ndjson::writer::{ConnectionEnd, LineWriter};

/// Pause after an accept that failed for lack of descriptors or memory: without it, it would fail again at once.
const ACCEPT_RETRY_MS: u64 = 100;

/// Runs until the task is aborted.
pub(crate) async fn accept(edge: Edge, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if edge.enter() => {
                let edge = edge.clone();
                spawn_local(async move {
                    serve(&edge, stream).await;
                    edge.leave();
                });
            }
            Ok((stream, _)) => turn_away(&edge, &stream),
            Err(error) => {
                tracing::warn!(%error, "a connection of the socket could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_RETRY_MS)).await;
            }
        }
    }
}

async fn serve(edge: &Edge, stream: UnixStream) {
    let conn = edge.conns.number();
    let (read, write) = stream.into_split();
    let limits = &edge.settings.router;
    let writer = Rc::new(LineWriter::new(
        write,
        limits.conn_messages_max,
        edge.settings.unsent_bytes_max,
        edge.mint.now(),
    ));
    edge.conns.add(conn, Out::LineWriter(writer.clone()));
    if edge.conns.is_closing() {
        writer.finish();
    }
    let mut reader = LineReader::new(edge.clone(), conn, writer.clone(), read);
    let slow_reader = Duration::from_millis(edge.settings.slow_reader_ms);
    let end = tokio::select! {
        end = reader.run() => end,
        end = writer.run(slow_reader) => end,
    };
    edge.conns.remove(conn);
    if reader.is_open() {
        edge.local_queue.push(Input::Close { conn });
    }
    match end {
        ConnectionEnd::Slow => {
            edge.counts.dropped_slow();
            tracing::info!(conn = conn.0, "a client of the socket was dropped: it did not read for too long");
        }
        ConnectionEnd::Silent => {
            tracing::info!(conn = conn.0, "a client of the socket was dropped: it sent no token");
        }
        ConnectionEnd::Finished | ConnectionEnd::Gone => {
            tracing::debug!(conn = conn.0, ?end, "a client of the socket left");
        }
    }
}

/// Sends a connection for which there is no room one line with 503, if that is possible without waiting.
fn turn_away(edge: &Edge, stream: &UnixStream) {
    edge.counts.turned_away();
    let max = edge.settings.connections_max;
    let (id, timestamp) = edge.mint.stamp();
    let refusal = OsRefusal::new(503, format!("Too many connections: at most {max} may be open"));
    let mut line = Vec::new();
    encode(&refusal.into_message(id, timestamp), &mut line);
    match stream.try_write(&line) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => tracing::debug!(%error, "a client that was turned away could not be told"),
    }
}
