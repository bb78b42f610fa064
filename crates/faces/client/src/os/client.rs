//! The handle of a client of the CQRS loop.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_model::{EventId, JsonText, OsId, OsKind, OsMessage, OsMetadata, Timestamp};
use millrace_wire::os::encode;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::os::error::OsClientError;
use crate::os::link::{self, Outgoing};
use crate::os::options::{OsOptions, OsRequest};
use crate::os::pending::OsRequests;
use crate::os::place::check_socket;

/// Most lines that wait for the writing task; at this number the next one waits.
const LINES_QUEUED_MAX: usize = 64;

/// A connection to the Unix socket of the CQRS loop. Cheap to clone; all clones share one connection, on which any
/// number of requests may be under way: an outcome names its request as its causation.
///
/// The client does not reconnect. When the connection is lost, every request under way fails with
/// [`OsClientError::Disconnected`], and so does every later one: whether to send a request again is the caller's
/// decision, because only the caller knows whether sending it twice does harm.
///
/// ```no_run
/// use millrace_client::{OsClient, OsClientError, OsOptions, default_socket};
///
/// # async fn example() -> Result<(), OsClientError> {
/// let client = OsClient::connect(OsOptions::new(default_socket())).await?;
/// match client.query("Memory.Get", &["/ducks"]).await {
///     Ok(data) => println!("{}", data.as_str()),
///     Err(OsClientError::Refused(fault)) => println!("{}: {}", fault.code, fault.message),
///     Err(error) => return Err(error),
/// }
/// client.emit("Duck.Seen", &7).await?;
/// client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct OsClient {
    shared: Arc<OsClientShared>,
}

#[derive(Debug)]
struct OsClientShared {
    lines: Mutex<Option<mpsc::Sender<Outgoing>>>,
    pending: Arc<OsRequests>,
    inflight: Semaphore,
    options: OsOptions,
    stop: watch::Sender<Option<Duration>>,
}

impl OsClient {
    /// The default socket is refused with [`OsClientError::Foreign`] if its folder belongs to somebody else.
    pub async fn connect(options: OsOptions) -> Result<OsClient, OsClientError> {
        check_socket(&options.path)?;
        let socket = UnixStream::connect(&options.path).await.map_err(|error| {
            OsClientError::Unreachable { path: options.path.clone(), reason: error.to_string() }
        })?;
        let (reader, writer) = socket.into_split();
        let (lines, queue) = mpsc::channel(LINES_QUEUED_MAX);
        let (stop, stopped) = watch::channel(None);
        let pending = Arc::new(OsRequests::default());
        let writing = tokio::spawn(link::write(writer, queue, pending.clone())).abort_handle();
        tokio::spawn(link::read(reader, options.received_line_bytes_max, pending.clone(), stopped, writing));
        let inflight = Semaphore::new(options.requests_inflight_max.clamp(1, Semaphore::MAX_PERMITS));
        let lines = Mutex::new(Some(lines));
        Ok(OsClient { shared: Arc::new(OsClientShared { lines, pending, inflight, options, stop }) })
    }

    /// Sends a query and returns the reply's data. An error outcome is [`OsClientError::Refused`].
    pub async fn query(&self, ty: &str, data: &impl Serialize) -> Result<JsonText, OsClientError> {
        self.request(OsKind::Query, ty, JsonText::from_value(data)?, None).await
    }

    pub async fn command(&self, ty: &str, data: &impl Serialize) -> Result<JsonText, OsClientError> {
        self.request(OsKind::Command, ty, JsonText::from_value(data)?, None).await
    }

    /// Sends a request whose data is JSON already, which then arrives byte for byte.
    pub async fn request(
        &self,
        kind: OsKind,
        ty: &str,
        data: JsonText,
        timeout: Option<Duration>,
    ) -> Result<JsonText, OsClientError> {
        let request = OsRequest { timeout, ..OsRequest::new(kind, ty, data)? };
        Ok(self.send(request).await?.data)
    }

    /// Sends a request with all its members given, and returns the whole reply.
    pub async fn send(&self, request: OsRequest) -> Result<OsMessage, OsClientError> {
        if !request.kind.is_request() {
            return Err(OsClientError::BadKind(request.kind));
        }
        let timeout = request.timeout.unwrap_or(self.shared.options.timeout);
        let asked = async {
            let _place = self.shared.inflight.acquire().await.map_err(|_| self.shared.pending.ended())?;
            let (id, line) = self.line(request)?;
            let _asking = Asking { pending: &self.shared.pending, id: &id };
            let outcome = self.shared.pending.add(&id)?;
            self.queue(Outgoing { line, written: None }).await?;
            outcome.await.unwrap_or_else(|_| Err(self.shared.pending.ended()))
        };
        tokio::time::timeout(timeout, asked).await.unwrap_or(Err(OsClientError::Timeout(timeout)))
    }

    /// Resolves when the event was written to the socket. Events are not answered; if the server refuses one, that is
    /// only logged.
    pub async fn emit(&self, ty: &str, data: &impl Serialize) -> Result<(), OsClientError> {
        self.emit_event(OsRequest::new(OsKind::Event, ty, JsonText::from_value(data)?)?).await
    }

    pub async fn emit_event(&self, event: OsRequest) -> Result<(), OsClientError> {
        if event.kind != OsKind::Event {
            return Err(OsClientError::BadKind(event.kind));
        }
        let (_, line) = self.line(event)?;
        let (written, confirmed) = oneshot::channel();
        self.queue(Outgoing { line, written: Some(written) }).await?;
        confirmed.await.map_err(|_| self.shared.pending.ended())
    }

    /// Accepts no more requests, shuts down the writing side, and waits until the server has answered everything and
    /// closed the connection, at most as long as a request may take.
    pub async fn close(&self) {
        let lines = self.lines_mut(Option::take);
        drop(lines);
        self.shared.inflight.close();
        let linger = self.shared.options.timeout;
        self.shared.stop.send_replace(Some(linger));
        // The reading task drops its receiver when it is done.
        self.shared.stop.closed().await;
    }

    fn line(&self, request: OsRequest) -> Result<(OsId, Vec<u8>), OsClientError> {
        let timestamp =
            Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64));
        let id = OsId::new(&EventId::mint(timestamp, rand::random(), 0).to_string())?;
        let OsRequest { kind, ty, data, correlation, causation, .. } = request;
        let metadata = OsMetadata { id: id.clone(), timestamp, correlation, causation, other: None };
        let mut line = Vec::new();
        encode(&OsMessage { kind, ty, data, metadata }, &mut line);
        match line.len() - 1 {
            bytes if bytes > self.shared.options.line_bytes_max => {
                Err(OsClientError::TooLarge { bytes, max: self.shared.options.line_bytes_max })
            }
            _ => Ok((id, line)),
        }
    }

    async fn queue(&self, outgoing: Outgoing) -> Result<(), OsClientError> {
        let lines = self.lines_mut(|lines| lines.clone()).ok_or(OsClientError::Closed)?;
        lines.send(outgoing).await.map_err(|_| self.shared.pending.ended())
    }

    fn lines_mut<T>(&self, with: impl FnOnce(&mut Option<mpsc::Sender<Outgoing>>) -> T) -> T {
        with(&mut self.shared.lines.lock())
    }
}

impl Drop for OsClientShared {
    /// Ends the reading task, because nobody waits for an outcome any more. The writing task ends with its queue.
    fn drop(&mut self) {
        self.stop.send_if_modified(|linger| linger.is_none() && linger.replace(DROPPED_LINGER).is_none());
    }
}

/// How long the connection stays after the last handle is dropped: queued events are still written, and the connection
/// is still read, so that the server does not see a hang-up.
const DROPPED_LINGER: Duration = Duration::from_secs(5);

/// Removes a request from the pending ones when it ends, however it ends.
struct Asking<'a> {
    pending: &'a OsRequests,
    id: &'a OsId,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.pending.forget(self.id);
    }
}
