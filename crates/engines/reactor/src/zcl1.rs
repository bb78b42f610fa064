//! ZCL1, the frame format of zABI capabilities: encoding and decoding of frames, without input or output.
//!
//! Nothing here is specific to `sys/loop`. Other capabilities use the same parts: a [`FrameReader`] for the bytes that
//! the guest writes, a [`FrameQueue`] for the bytes that it reads, [`FieldReader`] and [`FieldWriter`] for payloads,
//! [`ErrorPayload`] for error replies. The byte layout: `docs/formats/zcl1.md`.

mod error_payload;
mod fields;
mod frame;
mod header;
mod queue;
mod reader;

pub use error_payload::{BadErrorPayload, ERROR_TEXT_BYTES_MAX, ErrorPayload};
pub use fields::{FieldError, FieldReader, FieldWriter};
pub use frame::{Frame, FrameError};
pub use header::{
    FRAME_BYTES_MAX, HEADER_BYTES, Header, HeaderFault, MAGIC, STATUS_ERROR, STATUS_OK, STATUS_REQUEST,
    VERSION,
};
pub use queue::{FrameClass, FrameQueue, QueueFull};
pub use reader::{FrameReader, NotAFrame};
