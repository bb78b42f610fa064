//! Encodes values as bytes, in the forms that modules of both generations read correctly.

use super::{DEPTH_MAX, MsgPackError};
use crate::value::Value;

/// Appends one value.
pub(crate) fn write(out: &mut Vec<u8>, value: &Value) -> Result<(), MsgPackError> {
    write_at(out, value, 0)
}

fn write_at(out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), MsgPackError> {
    if depth > DEPTH_MAX {
        return Err(MsgPackError::TooDeep);
    }
    match value {
        Value::Nil => out.push(0xc0),
        Value::Bool(false) => out.push(0xc2),
        Value::Bool(true) => out.push(0xc3),
        Value::Int(number) => write_int(out, *number),
        Value::Uint(number) => write_uint(out, *number),
        Value::F32(number) => tagged(out, 0xca, number.to_be_bytes()),
        Value::F64(number) => tagged(out, 0xcb, number.to_be_bytes()),
        Value::Str(text) => write_str(out, text)?,
        Value::Bin(bytes) => write_bin(out, bytes)?,
        Value::Array(items) => {
            write_array_len(out, items.len())?;
            for item in items {
                write_at(out, item, depth + 1)?;
            }
        }
        Value::Map(entries) => {
            write_len(
                out,
                entries.len(),
                &Lengths { what: "a map", fix: (0x80, 15), wide: [None, Some(0xde), Some(0xdf)] },
            )?;
            for (key, value) in entries {
                write_at(out, key, depth + 1)?;
                write_at(out, value, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// Writes non-negative integers in the unsigned forms and negative ones in the shortest signed form: modules of
/// generation A subtract 256 from every int8, so `d0 05` would arrive as -251.
pub(crate) fn write_int(out: &mut Vec<u8>, number: i64) {
    if let Ok(number) = u64::try_from(number) {
        write_uint(out, number);
    } else if let Ok(small) = i8::try_from(number) {
        if small < -32 {
            out.push(0xd0);
        }
        out.push(small.cast_unsigned());
    } else if let Ok(small) = i16::try_from(number) {
        tagged(out, 0xd1, small.to_be_bytes());
    } else if let Ok(small) = i32::try_from(number) {
        tagged(out, 0xd2, small.to_be_bytes());
    } else {
        tagged(out, 0xd3, number.to_be_bytes());
    }
}

fn write_uint(out: &mut Vec<u8>, number: u64) {
    if let Ok(small) = u8::try_from(number) {
        if small > 0x7f {
            out.push(0xcc);
        }
        out.push(small);
    } else if let Ok(small) = u16::try_from(number) {
        tagged(out, 0xcd, small.to_be_bytes());
    } else if let Ok(small) = u32::try_from(number) {
        tagged(out, 0xce, small.to_be_bytes());
    } else {
        tagged(out, 0xcf, number.to_be_bytes());
    }
}

pub(crate) fn write_str(out: &mut Vec<u8>, text: &str) -> Result<(), MsgPackError> {
    let lengths = Lengths { what: "a string", fix: (0xa0, 31), wide: [Some(0xd9), Some(0xda), Some(0xdb)] };
    write_len(out, text.len(), &lengths)?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn write_bin(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), MsgPackError> {
    match (u8::try_from(bytes.len()), u16::try_from(bytes.len()), u32::try_from(bytes.len())) {
        (Ok(len), _, _) => tagged(out, 0xc4, len.to_be_bytes()),
        (_, Ok(len), _) => tagged(out, 0xc5, len.to_be_bytes()),
        (_, _, Ok(len)) => tagged(out, 0xc6, len.to_be_bytes()),
        _ => return Err(MsgPackError::TooLong { what: "a byte string", len: bytes.len() }),
    }
    out.extend_from_slice(bytes);
    Ok(())
}

pub(crate) fn write_array_len(out: &mut Vec<u8>, len: usize) -> Result<(), MsgPackError> {
    write_len(out, len, &Lengths { what: "an array", fix: (0x90, 15), wide: [None, Some(0xdc), Some(0xdd)] })
}

/// The markers of a family: the short form with its greatest length, and those with lengths of 1, 2 and 4 bytes.
struct Lengths {
    what: &'static str,
    fix: (u8, u8),
    wide: [Option<u8>; 3],
}

fn write_len(out: &mut Vec<u8>, len: usize, lengths: &Lengths) -> Result<(), MsgPackError> {
    let (fix, fix_max) = lengths.fix;
    let [one, two, four] = lengths.wide;
    if let Ok(len) = u8::try_from(len) {
        if len <= fix_max {
            out.push(fix | len);
            return Ok(());
        }
        if let Some(marker) = one {
            tagged(out, marker, len.to_be_bytes());
            return Ok(());
        }
    }
    match (two, u16::try_from(len), four, u32::try_from(len)) {
        (Some(marker), Ok(len), _, _) => tagged(out, marker, len.to_be_bytes()),
        (_, _, Some(marker), Ok(len)) => tagged(out, marker, len.to_be_bytes()),
        _ => return Err(MsgPackError::TooLong { what: lengths.what, len }),
    }
    Ok(())
}

fn tagged<const N: usize>(out: &mut Vec<u8>, marker: u8, bytes: [u8; N]) {
    out.push(marker);
    out.extend_from_slice(&bytes);
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    fn bytes_of(value: impl Into<Value>) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, &value.into()).unwrap();
        out
    }

    #[test]
    fn non_negative_integers_never_use_int8() {
        assert_eq!(bytes_of(5), [5]);
        assert_eq!(bytes_of(127), [0x7f]);
        assert_eq!(bytes_of(128), [0xcc, 128]);
        assert_eq!(bytes_of(256), [0xcd, 1, 0]);
        assert_eq!(bytes_of(0x7548_7104), [0xce, 0x75, 0x48, 0x71, 0x04]);
        assert_eq!(bytes_of(1_i64 << 32), [0xcf, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn negative_integers_take_the_shortest_signed_form() {
        assert_eq!(bytes_of(-1), [0xff]);
        assert_eq!(bytes_of(-32), [0xe0]);
        assert_eq!(bytes_of(-33), [0xd0, 0xdf]);
        assert_eq!(bytes_of(-129), [0xd1, 0xff, 0x7f]);
        assert_eq!(bytes_of(-40_000), [0xd2, 0xff, 0xff, 0x63, 0xc0]);
        assert_eq!(bytes_of(i64::MIN), [0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn floats_stay_floats() {
        assert_eq!(bytes_of(1.0_f32), [0xca, 0x3f, 0x80, 0, 0]);
        assert_eq!(bytes_of(1.0_f64)[0], 0xcb);
    }

    #[test]
    fn lengths_at_the_borders_come_back() {
        for len in [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            for value in [
                Value::Str("x".repeat(len)),
                Value::Bin(vec![7; len]),
                Value::Array(vec![Value::Nil; len]),
                Value::Map(vec![(Value::Int(1), Value::Bool(true)); len]),
            ] {
                assert_eq!(read(&bytes_of(value.clone())), Ok(value));
            }
        }
    }

    #[test]
    fn nesting_is_bounded_on_the_way_out_too() {
        let deep = (0..=DEPTH_MAX).fold(Value::Nil, |inner, _| Value::Array(vec![inner]));
        assert_eq!(write(&mut Vec::new(), &deep), Err(MsgPackError::TooDeep));
    }
}
