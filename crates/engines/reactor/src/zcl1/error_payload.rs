//! The payload of an error reply: three length-prefixed texts (trace, message, detail), 12 + T + M + D bytes.
//!
//! The reference host announces four bytes more and fills them with memory of its stack; this code writes the
//! documented length.

use thiserror::Error;

use super::fields::{FieldError, FieldReader, FieldWriter};

/// Longest encoding of each of the three texts. Longer texts are cut at the end of a character, so that an error reply
/// always fits into a frame.
pub const ERROR_TEXT_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorPayload<'a> {
    /// The component that the error comes from, for example `sys.loop`.
    pub trace: &'a str,
    pub message: &'a str,
    /// Empty in most errors: clients of the reference do not read this text.
    pub detail: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadErrorPayload {
    #[error("not three texts: {0}")]
    Layout(#[from] FieldError),
    #[error("a text contains NUL")]
    Nul,
}

impl<'a> ErrorPayload<'a> {
    /// Reads a payload that must hold the three texts and nothing else.
    ///
    /// # Errors
    ///
    /// [`BadErrorPayload`]
    pub fn decode(payload: &'a [u8]) -> Result<ErrorPayload<'a>, BadErrorPayload> {
        let mut fields = FieldReader::new(payload);
        let (trace, message, detail) = (fields.text()?, fields.text()?, fields.text()?);
        fields.finish()?;
        if [trace, message, detail].iter().any(|text| text.contains('\0')) {
            return Err(BadErrorPayload::Nul);
        }
        Ok(ErrorPayload { trace, message, detail })
    }

    /// Appends the payload. A text ends before its first NUL, which the protocol forbids.
    pub fn encode(&self, payload: &mut Vec<u8>) {
        let mut fields = FieldWriter::new(payload);
        for text in [self.trace, self.message, self.detail] {
            fields.prefixed(sendable(text).as_bytes());
        }
    }

    /// Returns the number of bytes that [`ErrorPayload::encode`] appends.
    pub fn encoded_bytes(&self) -> usize {
        [self.trace, self.message, self.detail].iter().map(|text| 4 + sendable(text).len()).sum()
    }
}

fn sendable(text: &str) -> &str {
    let text = text.split('\0').next().unwrap_or_default();
    &text[..text.floor_char_boundary(ERROR_TEXT_BYTES_MAX)]
}
