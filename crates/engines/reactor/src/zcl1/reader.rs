//! Cuts the bytes that a guest writes into frames. A partial frame is not an error; its bytes are held until the rest
//! arrives.
//!
//! The reader never holds more bytes than it was given, whatever length a header announces, and never more than one
//! frame. The owner of the reader handles each frame, and may refuse input before any of it is consumed:
//! [`FrameReader::header`] and [`FrameReader::bytes_to_finish`] only look, the other methods change the reader.

use thiserror::Error;

use super::header::{HEADER_BYTES, Header, MAGIC};

/// Capacity that an empty reader keeps for the next partial frame.
const IDLE_BYTES_MAX: usize = 4096;

/// The input cannot be cut into frames: it is unknown where the next frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAFrame {
    #[error("the bytes do not begin with the magic of ZCL1")]
    BadMagic,
    #[error("the frame announces {bytes} bytes, at most {max} are allowed")]
    TooLong { bytes: usize, max: usize },
}

#[derive(Debug)]
pub struct FrameReader {
    /// The beginning of a frame, never a whole one.
    held: Vec<u8>,
    /// How many bytes of a refused frame are still to come and to be dropped. `held` is empty while there are any.
    discard_bytes: usize,
    frame_bytes_max: usize,
}

impl FrameReader {
    /// `frame_bytes_max` includes the header.
    pub fn new(frame_bytes_max: usize) -> FrameReader {
        FrameReader { held: Vec::new(), discard_bytes: 0, frame_bytes_max: frame_bytes_max.max(HEADER_BYTES) }
    }

    /// Returns the bytes held of an incomplete frame.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Returns how many bytes of a refused frame are still to come.
    pub fn discard_bytes(&self) -> usize {
        self.discard_bytes
    }

    /// Returns the header made of the held bytes and the first bytes of `input`; `None` while it is incomplete.
    ///
    /// # Errors
    ///
    /// [`NotAFrame`] as soon as a byte of the magic is wrong, or the length is known to be too large.
    pub fn header(&self, input: &[u8]) -> Result<Option<Header>, NotAFrame> {
        let mut bytes = [0; HEADER_BYTES];
        let known = self.held.iter().chain(input).take(HEADER_BYTES);
        let count = bytes.iter_mut().zip(known).map(|(to, from)| *to = *from).count();
        let magic = count.min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(NotAFrame::BadMagic);
        }
        if count < HEADER_BYTES {
            return Ok(None);
        }
        let header = Header::decode(&bytes).ok_or(NotAFrame::BadMagic)?;
        match header.frame_bytes() {
            bytes if bytes > self.frame_bytes_max => {
                Err(NotAFrame::TooLong { bytes, max: self.frame_bytes_max })
            }
            _ => Ok(Some(header)),
        }
    }

    /// Returns how many bytes of input belong to the frame with this header.
    pub fn bytes_to_finish(&self, header: &Header) -> usize {
        header.frame_bytes().saturating_sub(self.held.len())
    }

    /// Keeps `input`, which ends inside a frame.
    pub fn hold(&mut self, input: &[u8]) {
        self.held.extend_from_slice(input);
    }

    /// Completes a frame whose last bytes are `input`, and hands its payload to `read`. Copies nothing if no byte of
    /// the frame was held.
    pub fn finish<R>(&mut self, input: &[u8], read: impl FnOnce(&[u8]) -> R) -> R {
        if self.held.is_empty() {
            return read(input.get(HEADER_BYTES..).unwrap_or_default());
        }
        self.held.extend_from_slice(input);
        let result = read(self.held.get(HEADER_BYTES..).unwrap_or_default());
        self.clear();
        result
    }

    /// Refuses the frame with this header: drops the bytes held of it, and has [`FrameReader::discard`] drop those
    /// still to come.
    pub fn refuse(&mut self, header: &Header) {
        let to_come = self.bytes_to_finish(header);
        self.clear();
        self.discard_bytes = to_come;
    }

    /// Drops bytes of a refused frame; returns how many bytes of `input` were dropped.
    pub fn discard(&mut self, input: &[u8]) -> usize {
        let dropped = self.discard_bytes.min(input.len());
        self.discard_bytes -= dropped;
        dropped
    }

    /// Forgets every byte of an incomplete frame.
    pub fn clear(&mut self) {
        self.discard_bytes = 0;
        self.held.clear();
        if self.held.capacity() > IDLE_BYTES_MAX {
            self.held = Vec::new();
        }
    }
}
