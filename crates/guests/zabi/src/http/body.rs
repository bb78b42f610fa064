//! The body of a response: whole, or a stream that the guest writes to through a handle of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use millrace_reactor::{Readiness, ZabiError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::signals::ReadySignal;

/// How many bytes one write takes at most.
const CHUNK_BYTES_MAX: usize = 65_536;

/// The body as `hyper` sends it.
#[derive(Debug)]
pub(super) enum ResponseBody {
    Whole(Option<Bytes>),
    Stream(BodyStream),
}

#[derive(Debug)]
pub(super) struct BodyStream {
    chunks: Receiver<Bytes>,
    signal: ReadySignal,
}

/// The guest's end of a stream. The response is complete when the handle ends.
#[derive(Debug)]
pub(super) struct BodyHandle {
    chunks: Sender<Bytes>,
    signal: ReadySignal,
}

pub(super) fn body_stream(chunks_max: usize, signal: ReadySignal) -> (BodyHandle, ResponseBody) {
    let (sender, receiver) = channel(chunks_max.max(1));
    let stream = BodyStream { chunks: receiver, signal: signal.clone() };
    (BodyHandle { chunks: sender, signal }, ResponseBody::Stream(stream))
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            ResponseBody::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            ResponseBody::Stream(stream) => stream.chunks.poll_recv(context).map(|chunk| {
                stream.signal.changed();
                chunk.map(|bytes| Ok(Frame::data(bytes)))
            }),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ResponseBody::Stream(_) => SizeHint::default(),
        }
    }
}

/// The client is gone, or the response is sent: tells the guest.
impl Drop for BodyStream {
    fn drop(&mut self) {
        self.chunks.close();
        self.signal.changed();
    }
}

impl OpenHandle for BodyHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::WRITE
    }

    fn read(&mut self, _to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        Err(ZabiError::NotSupported)
    }

    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        let count = from.len().min(CHUNK_BYTES_MAX);
        let chunk = Bytes::copy_from_slice(&from[..count]);
        self.chunks.try_send(chunk).map(|()| count).map_err(|error| match error {
            TrySendError::Full(_) => ZabiError::Again,
            TrySendError::Closed(_) => ZabiError::Closed,
        })
    }

    fn watch_source(&self) -> Option<WatchSource> {
        let state = match self.chunks.is_closed() {
            true => Readiness::WRITABLE | Readiness::HUP,
            false if self.chunks.capacity() > 0 => Readiness::WRITABLE,
            false => Readiness::NONE,
        };
        Some(WatchSource::Computed { signal: self.signal.id(), state })
    }
}
