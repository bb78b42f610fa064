//! The fields of payloads: little-endian integers and length-prefixed bytes, packed without padding.

use thiserror::Error;

/// Why a payload does not have the layout that its op requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    #[error("the payload ends inside a field")]
    Short,
    #[error("{bytes} bytes follow the last field")]
    Trailing { bytes: usize },
    #[error("a text is not UTF-8")]
    NotText,
}

/// Reads fields from the front of a payload. Never copies and never trusts a length: a length prefix beyond the end of
/// the payload is [`FieldError::Short`].
#[derive(Clone, Copy, Debug)]
pub struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub fn new(payload: &'a [u8]) -> FieldReader<'a> {
        FieldReader { rest: payload }
    }

    /// Reads 16 bits.
    ///
    /// # Errors
    ///
    /// [`FieldError::Short`]
    pub fn u16(&mut self) -> Result<u16, FieldError> {
        self.chunk().map(u16::from_le_bytes)
    }

    /// Reads 32 bits.
    ///
    /// # Errors
    ///
    /// [`FieldError::Short`]
    pub fn u32(&mut self) -> Result<u32, FieldError> {
        self.chunk().map(u32::from_le_bytes)
    }

    /// Reads 64 bits.
    ///
    /// # Errors
    ///
    /// [`FieldError::Short`]
    pub fn u64(&mut self) -> Result<u64, FieldError> {
        self.chunk().map(u64::from_le_bytes)
    }

    /// Reads a `u32` length and that many bytes.
    ///
    /// # Errors
    ///
    /// [`FieldError::Short`]
    pub fn prefixed(&mut self) -> Result<&'a [u8], FieldError> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(FieldError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a `u32` length and that many bytes of UTF-8.
    ///
    /// # Errors
    ///
    /// [`FieldError::Short`], [`FieldError::NotText`]
    pub fn text(&mut self) -> Result<&'a str, FieldError> {
        std::str::from_utf8(self.prefixed()?).map_err(|_| FieldError::NotText)
    }

    /// Checks that every byte was read.
    ///
    /// # Errors
    ///
    /// [`FieldError::Trailing`]
    pub fn finish(self) -> Result<(), FieldError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(FieldError::Trailing { bytes }),
        }
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>().ok_or(FieldError::Short)?;
        self.rest = rest;
        Ok(*chunk)
    }
}

/// Appends fields to a payload.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    payload: &'a mut Vec<u8>,
}

impl<'a> FieldWriter<'a> {
    pub fn new(payload: &'a mut Vec<u8>) -> FieldWriter<'a> {
        FieldWriter { payload }
    }

    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.payload.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.payload.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.payload.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends the length as `u32`, then the bytes. Payloads are far below 4 GiB; longer ones are cut there.
    pub fn prefixed(&mut self, bytes: &[u8]) -> &mut Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.u32(length);
        self.payload.extend_from_slice(&bytes[..length as usize]);
        self
    }
}
