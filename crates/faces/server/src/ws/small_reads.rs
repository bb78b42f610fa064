//! The stream of a WebSocket whose limit on frames is still to change.
//!
//! The library cannot change the limit of an existing socket, and data that it has read ahead is lost with the socket.
//! So until a connection has authenticated, this stream gives the library one byte at a time. After a whole frame the
//! library has then read nothing ahead, and a new socket with a larger limit goes on at that point. Frames are few and
//! small until then.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::socket::Stream;

/// Bytes read from the stream at a time.
const AHEAD_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct SmallReads {
    stream: Stream,
    ahead: Vec<u8>,
    /// How much of `ahead` was handed over.
    taken: usize,
}

impl SmallReads {
    /// `ahead` was read before the WebSocket began.
    pub(crate) fn new(stream: Stream, ahead: Vec<u8>) -> SmallReads {
        SmallReads { stream, ahead, taken: 0 }
    }

    /// The stream, and the bytes that were read and not handed over.
    pub(crate) fn into_parts(mut self) -> (Stream, Vec<u8>) {
        let rest = self.ahead.split_off(self.taken.min(self.ahead.len()));
        (self.stream, rest)
    }
}

/// For discarding what the peer still sends.
impl From<SmallReads> for Stream {
    fn from(reads: SmallReads) -> Stream {
        reads.stream
    }
}

impl AsyncRead for SmallReads {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.taken >= this.ahead.len() {
            let mut scratch = [0; AHEAD_BYTES];
            let mut read = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut read))?;
            this.ahead.clear();
            this.ahead.extend_from_slice(read.filled());
            this.taken = 0;
        }
        if let Some(byte) = this.ahead.get(this.taken)
            && buf.remaining() > 0
        {
            buf.put_slice(&[*byte]);
            this.taken += 1;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SmallReads {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
