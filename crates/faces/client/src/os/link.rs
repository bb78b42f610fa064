//! The two halves of a connection: one task writes lines, one reads them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use millrace_model::OsFault;
use millrace_wire::os::{Line, LineSplitter, parse};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use crate::os::error::OsClientError;
use crate::os::pending::{OsRequests, fault_of};

/// Lines are collected up to about this much before they are written.
const WRITE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 64 << 10;

pub(super) struct Outgoing {
    pub(super) line: Vec<u8>,
    /// Notified when the line has been written to the socket.
    pub(super) written: Option<oneshot::Sender<()>>,
}

/// Writes lines until all senders are gone, then shuts down the writing side: the server answers everything and closes.
pub(super) async fn write(
    mut socket: OwnedWriteHalf,
    mut lines: mpsc::Receiver<Outgoing>,
    pending: Arc<OsRequests>,
) {
    let mut buffer = Vec::new();
    let mut told = Vec::new();
    while let Some(first) = lines.recv().await {
        buffer.clear();
        let mut next = Some(first);
        while let Some(outgoing) = next {
            buffer.extend_from_slice(&outgoing.line);
            told.extend(outgoing.written);
            next = if buffer.len() < WRITE_BYTES { lines.try_recv().ok() } else { None };
        }
        if let Err(error) = socket.write_all(&buffer).await {
            // Earlier requests may still be answered: the reading task ends the connection.
            pending.refuse_more(OsClientError::Disconnected(error.to_string()));
            return;
        }
        for written in told.drain(..) {
            let _ = written.send(());
        }
    }
    // Fails only if the connection is gone, which the reading task notices too.
    let _ = socket.shutdown().await;
}

/// Reads lines until the server closes; once `stop` holds a duration, for that long at most. Then it ends the writing
/// task, too.
pub(super) async fn read(
    mut socket: OwnedReadHalf,
    line_bytes_max: usize,
    pending: Arc<OsRequests>,
    mut stop: watch::Receiver<Option<Duration>>,
    writing: AbortHandle,
) {
    let reading = read_lines(&mut socket, line_bytes_max, &pending);
    let stopped = async {
        let linger = stop.wait_for(Option::is_some).await.ok().and_then(|linger| *linger);
        tokio::time::sleep(linger.unwrap_or_default()).await;
    };
    let error = tokio::select! {
        error = reading => error,
        () = stopped => OsClientError::Closed,
    };
    pending.close(&error);
    writing.abort();
}

async fn read_lines(
    socket: &mut OwnedReadHalf,
    line_bytes_max: usize,
    pending: &OsRequests,
) -> OsClientError {
    let mut splitter = LineSplitter::new(line_bytes_max);
    let mut buffer = vec![0; READ_BYTES];
    // The last error that answers no request, such as that the server has too many connections.
    let mut closing_error = None;
    loop {
        let mut rest = match socket.read(&mut buffer).await {
            Ok(0) => return ended(closing_error, "the server closed the connection"),
            Ok(bytes) => &buffer[..bytes],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return ended(closing_error, &error.to_string()),
        };
        while let Some(line) = splitter.next(&mut rest) {
            match line {
                Line::Whole(line) => on_line(line, pending, &mut closing_error),
                Line::TooLong => {
                    let reason = format!("the server sent a line of more than {line_bytes_max} bytes");
                    return OsClientError::Disconnected(reason);
                }
            }
        }
    }
}

fn on_line(line: &[u8], pending: &OsRequests, closing_error: &mut Option<OsFault>) {
    let message = match parse(line, None) {
        Ok(message) => message,
        Err(refusal) => {
            tracing::warn!(%refusal, "the server sent a line that is no message");
            return;
        }
    };
    let Some(message) = pending.settle(message) else { return };
    if message.kind == millrace_model::OsKind::Error {
        let fault = fault_of(&message);
        let causation = message.metadata.causation;
        tracing::warn!(code = fault.code, message = fault.message, ?causation, "an error nobody waits for");
        *closing_error = Some(fault);
    }
}

fn ended(closing_error: Option<OsFault>, reason: &str) -> OsClientError {
    OsClientError::Disconnected(match closing_error {
        Some(fault) => format!("{reason}; it said: {} ({})", fault.message, fault.code),
        None => reason.into(),
    })
}
