//! A whole frame in a slice of bytes.

use thiserror::Error;

use super::header::{FRAME_BYTES_MAX, HEADER_BYTES, Header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub header: Header,
    pub payload: &'a [u8],
}

/// Why a slice is not exactly one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    #[error("the bytes do not begin with the magic of ZCL1")]
    BadMagic,
    #[error("the frame needs {missing} more bytes")]
    Short { missing: usize },
    #[error("the frame announces {bytes} bytes, at most {max} are allowed")]
    TooLong { bytes: usize, max: usize },
    #[error("{bytes} bytes follow the frame")]
    Trailing { bytes: usize },
}

impl<'a> Frame<'a> {
    /// Reads a slice that must hold exactly one frame: for capabilities that take one frame per write, and for
    /// `zi_ctl`. Does not check the header's fields.
    ///
    /// # Errors
    ///
    /// [`FrameError`]
    pub fn decode(bytes: &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let (frame, rest) = Frame::decode_first(bytes)?;
        match rest.len() {
            0 => Ok(frame),
            bytes => Err(FrameError::Trailing { bytes }),
        }
    }

    /// Reads the frame at the beginning of a slice; returns the frame and the bytes behind it.
    ///
    /// # Errors
    ///
    /// [`FrameError`], but never [`FrameError::Trailing`].
    pub fn decode_first(bytes: &'a [u8]) -> Result<(Frame<'a>, &'a [u8]), FrameError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(FrameError::Short { missing: HEADER_BYTES - bytes.len() });
        };
        let header = Header::decode(header).ok_or(FrameError::BadMagic)?;
        let announced = header.frame_bytes();
        if announced > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { bytes: announced, max: FRAME_BYTES_MAX });
        }
        match rest.split_at_checked(header.payload_bytes as usize) {
            Some((payload, rest)) => Ok((Frame { header, payload }, rest)),
            None => Err(FrameError::Short { missing: announced - bytes.len() }),
        }
    }

    /// Returns the bytes of a frame with this payload. The header's `payload_bytes` is replaced by the payload's
    /// length.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`]
    pub fn encode(header: Header, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
        let header = header_for(header, payload.len(), FRAME_BYTES_MAX)?;
        let mut bytes = Vec::with_capacity(header.frame_bytes());
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }
}

/// Returns `header` with the payload's length, if the frame fits `max` bytes.
pub(super) fn header_for(header: Header, payload_bytes: usize, max: usize) -> Result<Header, FrameError> {
    let bytes = HEADER_BYTES.saturating_add(payload_bytes);
    match u32::try_from(payload_bytes) {
        Ok(payload_bytes) if bytes <= max => Ok(Header { payload_bytes, ..header }),
        _ => Err(FrameError::TooLong { bytes, max }),
    }
}
