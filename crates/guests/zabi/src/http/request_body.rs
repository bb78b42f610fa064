//! The body of a request: inline if it is short, else a stream that the guest reads through a handle of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Incoming};
use millrace_reactor::{Readiness, ZabiError};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::signals::ReadySignal;

/// A body as far as it has been read.
#[derive(Debug)]
pub(super) enum RequestBody {
    Whole(Bytes),
    /// The body is longer than an inline body may be.
    Long {
        first: Bytes,
        rest: Incoming,
    },
}

/// A part of a body, or the message that the client broke it off.
type Chunk = Result<Bytes, ClientGone>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClientGone;

/// The guest's end of a stream.
#[derive(Debug)]
pub(super) struct RequestBodyHandle {
    chunks: Receiver<Chunk>,
    /// The part of a chunk that the guest has not read.
    rest: Bytes,
    is_broken: bool,
    /// The client broke the body off; there may be bytes to read before that.
    was_cut: Arc<AtomicBool>,
    signal: ReadySignal,
}

/// The HTTP thread's end of a stream.
#[derive(Debug)]
pub(super) struct RequestBodySender {
    chunks: Sender<Chunk>,
    was_cut: Arc<AtomicBool>,
    signal: ReadySignal,
}

/// Reads a body until its end, or until it is longer than `inline_bytes_max`.
pub(super) async fn read_body(
    mut body: Incoming,
    inline_bytes_max: usize,
) -> Result<RequestBody, StatusCode> {
    let mut read = BytesMut::new();
    let announced = body.size_hint().lower();
    if announced > inline_bytes_max as u64 {
        return Ok(RequestBody::Long { first: Bytes::new(), rest: body });
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        if let Some(bytes) = frame.data_ref() {
            read.extend_from_slice(bytes);
        }
        if read.len() > inline_bytes_max {
            return Ok(RequestBody::Long { first: read.freeze(), rest: body });
        }
    }
    Ok(RequestBody::Whole(read.freeze()))
}

pub(super) fn request_stream(
    chunks_max: usize,
    signal: ReadySignal,
) -> (RequestBodySender, RequestBodyHandle) {
    let (sender, receiver) = channel(chunks_max.max(1));
    let was_cut = Arc::new(AtomicBool::new(false));
    let handle = RequestBodyHandle {
        chunks: receiver,
        rest: Bytes::new(),
        is_broken: false,
        was_cut: Arc::clone(&was_cut),
        signal: signal.clone(),
    };
    (RequestBodySender { chunks: sender, was_cut, signal }, handle)
}

impl RequestBodySender {
    /// Passes the body on as fast as the guest reads it. Ends with the body, or when the guest has ended its handle.
    pub(super) async fn forward(self, first: Bytes, mut rest: Incoming) {
        if !first.is_empty() && !self.send(Ok(first)).await {
            return;
        }
        while let Some(frame) = rest.frame().await {
            let chunk = match frame {
                Ok(frame) => frame.into_data().map(Ok).ok(),
                Err(_) => Some(Err(ClientGone)),
            };
            let Some(chunk) = chunk else { continue };
            let is_last = chunk.is_err();
            self.was_cut.store(is_last, Ordering::SeqCst);
            if !self.send(chunk).await || is_last {
                return;
            }
        }
    }

    async fn send(&self, chunk: Chunk) -> bool {
        let is_taken = self.chunks.send(chunk).await.is_ok();
        self.signal.changed();
        is_taken
    }
}

/// The end of the stream makes the handle readable too. The signal must come after the channel is closed, so the sender
/// is replaced by one of a channel that nobody reads.
impl Drop for RequestBodySender {
    fn drop(&mut self) {
        self.chunks = channel(1).0;
        self.signal.changed();
    }
}

impl OpenHandle for RequestBodyHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        while self.rest.is_empty() {
            if self.is_broken {
                return Err(ZabiError::Io);
            }
            match self.chunks.try_recv() {
                Ok(Ok(bytes)) => self.rest = bytes,
                Ok(Err(ClientGone)) => self.is_broken = true,
                Err(TryRecvError::Empty) => return Err(ZabiError::Again),
                Err(TryRecvError::Disconnected) => return Ok(0),
            }
        }
        let count = self.rest.len().min(to.len());
        to[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }

    fn write(
        &mut self,
        _from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        Err(ZabiError::NotSupported)
    }

    fn watch_source(&self) -> Option<WatchSource> {
        let has_bytes = !self.rest.is_empty() || !self.chunks.is_empty();
        let is_ended = self.is_broken || self.chunks.is_closed();
        let mut state = if has_bytes || is_ended { Readiness::READABLE } else { Readiness::NONE };
        if self.was_cut.load(Ordering::SeqCst) {
            state = state | Readiness::READABLE | Readiness::ERROR;
        }
        Some(WatchSource::Computed { signal: self.signal.id(), state })
    }
}
