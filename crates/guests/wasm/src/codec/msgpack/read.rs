//! Decodes bytes to values. The reader allocates only for what it has read: a length is checked against the bytes that
//! are left, and arrays and maps grow as their elements arrive.

use super::{DEPTH_MAX, ELEMENTS_MAX, MsgPackError};
use crate::value::Value;

/// Reads one value that fills the bytes exactly.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, MsgPackError> {
    let mut reader = MsgpackReader { bytes, at: 0, elements_left: ELEMENTS_MAX };
    let value = reader.value(0)?;
    let extra = bytes.len() - reader.at;
    if extra == 0 { Ok(value) } else { Err(MsgPackError::Trailing { extra }) }
}

struct MsgpackReader<'a> {
    bytes: &'a [u8],
    at: usize,
    elements_left: usize,
}

impl<'a> MsgpackReader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, MsgPackError> {
        if depth > DEPTH_MAX {
            return Err(MsgPackError::TooDeep);
        }
        self.elements_left = self.elements_left.checked_sub(1).ok_or(MsgPackError::TooMany)?;
        let at = self.at;
        let [marker] = self.fixed()?;
        match marker {
            0x00..=0x7f => Ok(Value::Int(i64::from(marker))),
            0x80..=0x8f => self.map(u32::from(marker & 0x0f), depth),
            0x90..=0x9f => self.array(u32::from(marker & 0x0f), depth),
            0xa0..=0xbf => self.str(u32::from(marker & 0x1f)),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Bool(false)),
            0xc3 => Ok(Value::Bool(true)),
            0xca => Ok(Value::F32(f32::from_be_bytes(self.fixed()?))),
            0xcb => Ok(Value::F64(f64::from_be_bytes(self.fixed()?))),
            0xcc..=0xd3 => self.int(marker),
            0xe0..=0xff => Ok(Value::Int(i64::from(marker.cast_signed()))),
            0xc4 | 0xd9 | 0xc5 | 0xda | 0xdc | 0xde | 0xc6 | 0xdb | 0xdd | 0xdf => self.sized(marker, depth),
            0xc1 | 0xc7..=0xc9 | 0xd4..=0xd8 => Err(MsgPackError::Marker { marker, at }),
        }
    }

    fn int(&mut self, marker: u8) -> Result<Value, MsgPackError> {
        Ok(match marker {
            0xcc => Value::Int(i64::from(u8::from_be_bytes(self.fixed()?))),
            0xcd => Value::Int(i64::from(u16::from_be_bytes(self.fixed()?))),
            0xce => Value::Int(i64::from(u32::from_be_bytes(self.fixed()?))),
            0xcf => Value::from(u64::from_be_bytes(self.fixed()?)),
            0xd0 => Value::Int(i64::from(i8::from_be_bytes(self.fixed()?))),
            0xd1 => Value::Int(i64::from(i16::from_be_bytes(self.fixed()?))),
            0xd2 => Value::Int(i64::from(i32::from_be_bytes(self.fixed()?))),
            _ => Value::Int(i64::from_be_bytes(self.fixed()?)),
        })
    }

    fn sized(&mut self, marker: u8, depth: usize) -> Result<Value, MsgPackError> {
        let len = match marker {
            0xc4 | 0xd9 => u32::from(u8::from_be_bytes(self.fixed()?)),
            0xc5 | 0xda | 0xdc | 0xde => u32::from(u16::from_be_bytes(self.fixed()?)),
            _ => u32::from_be_bytes(self.fixed()?),
        };
        match marker {
            0xc4..=0xc6 => Ok(Value::Bin(self.take_bytes(len)?.to_vec())),
            0xd9..=0xdb => self.str(len),
            0xdc | 0xdd => self.array(len, depth),
            _ => self.map(len, depth),
        }
    }

    fn str(&mut self, len: u32) -> Result<Value, MsgPackError> {
        let at = self.at;
        let text = std::str::from_utf8(self.take_bytes(len)?).map_err(|_| MsgPackError::Utf8 { at })?;
        Ok(Value::from(text))
    }

    fn array(&mut self, len: u32, depth: usize) -> Result<Value, MsgPackError> {
        self.check_left(len, 1)?;
        let mut items = Vec::new();
        for _ in 0..len {
            items.push(self.value(depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, len: u32, depth: usize) -> Result<Value, MsgPackError> {
        self.check_left(len, 2)?;
        let mut entries = Vec::new();
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            entries.push((key, self.value(depth + 1)?));
        }
        Ok(Value::Map(entries))
    }

    /// Refuses a length that the bytes left cannot hold, before anything is read for it.
    fn check_left(&self, len: u32, bytes_each: u64) -> Result<(), MsgPackError> {
        let left = (self.bytes.len() - self.at) as u64;
        if u64::from(len) * bytes_each > left { Err(self.truncated()) } else { Ok(()) }
    }

    fn take_bytes(&mut self, len: u32) -> Result<&'a [u8], MsgPackError> {
        let end = usize::try_from(len).ok().and_then(|len| self.at.checked_add(len));
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or_else(|| self.truncated())?;
        self.at += taken.len();
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], MsgPackError> {
        let (head, _) = self.bytes[self.at..].split_first_chunk::<N>().ok_or_else(|| self.truncated())?;
        self.at += N;
        Ok(*head)
    }

    fn truncated(&self) -> MsgPackError {
        MsgPackError::Truncated { at: self.bytes.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_integer_form_is_read() {
        let forms: [(&[u8], i64); 10] = [
            (&[0x7f], 127),
            (&[0xe0], -32),
            (&[0xcc, 200], 200),
            (&[0xcd, 1, 0], 256),
            (&[0xce, 0xff, 0xff, 0xff, 0xff], u32::MAX.into()),
            (&[0xcf, 0, 0, 0, 0, 0, 0, 0, 9], 9),
            (&[0xd0, 5], 5),
            (&[0xd0, 0x80], -128),
            (&[0xd1, 0xff, 0], -256),
            (
                &[0xd3, 0xbd, 0x3d, 0xf8, 0xfa, 0xa3, 0xa0, 0x82, 0x7a],
                0xbd3d_f8fa_a3a0_827a_u64.cast_signed(),
            ),
        ];
        for (bytes, number) in forms {
            assert_eq!(read(bytes), Ok(Value::Int(number)), "{bytes:02x?}");
        }
        assert_eq!(read(&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255]), Ok(Value::Uint(u64::MAX)));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for lie in [
            &[0xdd, 0xff, 0xff, 0xff, 0xff, 0][..],
            &[0xdf, 0x7f, 0xff, 0xff, 0xff],
            &[0xc6, 0xff, 0, 0, 0, 1],
        ] {
            assert_eq!(read(lie), Err(MsgPackError::Truncated { at: lie.len() }), "{lie:02x?}");
        }
    }

    #[test]
    fn trailing_bytes_extensions_and_bad_text_are_refused() {
        assert_eq!(read(&[1, 2]), Err(MsgPackError::Trailing { extra: 1 }));
        assert_eq!(read(&[]), Err(MsgPackError::Truncated { at: 0 }));
        assert_eq!(read(&[0xd4, 0, 0]), Err(MsgPackError::Marker { marker: 0xd4, at: 0 }));
        assert_eq!(read(&[0x91, 0xc1]), Err(MsgPackError::Marker { marker: 0xc1, at: 1 }));
        assert_eq!(read(&[0xa1, 0xff]), Err(MsgPackError::Utf8 { at: 1 }));
    }

    #[test]
    fn nesting_and_element_counts_are_bounded() {
        let mut deep = vec![0x91; DEPTH_MAX];
        deep.push(0xc0);
        assert!(read(&deep).is_ok());
        deep.insert(0, 0x91);
        assert_eq!(read(&deep), Err(MsgPackError::TooDeep));
        let mut many = vec![0xdd];
        many.extend(u32::try_from(ELEMENTS_MAX).unwrap().to_be_bytes());
        many.resize(many.len() + ELEMENTS_MAX, 0xc0);
        assert_eq!(read(&many), Err(MsgPackError::TooMany));
    }
}
