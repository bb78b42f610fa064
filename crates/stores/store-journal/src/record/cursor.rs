//! Reads and writes the parts of a body: varints and byte strings with their lengths.

use bytes::Bytes;

/// Bytes are not as this crate writes them; the text says which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// Appends a number as LEB128: seven bits per byte, lowest first.
pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front of a body.
pub(super) struct Cursor<'a> {
    body: &'a Bytes,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(body: &'a Bytes) -> Cursor<'a> {
        Cursor { body, at: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.body.len()
    }

    /// Returns how many bytes are left: no count of things can be larger.
    pub(super) fn left(&self) -> usize {
        self.body.len() - self.at
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.body.get(self.at).ok_or(Malformed("its body ends early"))?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("a number in its body"))
    }

    /// Shares the bytes with the body instead of copying them.
    pub(super) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let count = self.varint()?;
        self.take(count)
    }

    pub(super) fn take(&mut self, count: u64) -> Result<Bytes, Malformed> {
        let count = usize::try_from(count).ok().filter(|count| *count <= self.left());
        let count = count.ok_or(Malformed("its body ends early"))?;
        self.at += count;
        Ok(self.body.slice(self.at - count..self.at))
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(&bytes).map_err(|_| Malformed("a text in its body"))?;
        Ok(text.to_owned())
    }
}
