//! The MsgPack dialect of both wire generations.
//!
//! Our own codec instead of a crate (decision 0043): integers are written in the one form that every module reads
//! correctly, a false length makes the host allocate nothing, extension types and text that is not UTF-8 are errors,
//! and nesting and element counts are bounded as they are inside the modules.

mod read;
mod write;

pub(crate) use self::read::read;
pub(crate) use self::write::{write, write_array_len, write_int, write_str};

/// Nesting beyond this is refused; the modules' own readers stop at the same depth.
pub(crate) const DEPTH_MAX: usize = 128;

/// Values in one payload, counted over all levels; the modules' own bound.
pub(crate) const ELEMENTS_MAX: usize = 1_048_576;

/// Why bytes are not a value, or a value cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MsgPackError {
    #[error("MsgPack payload ends at byte {at}, inside a value")]
    Truncated { at: usize },
    #[error("MsgPack payload has {extra} bytes after its value")]
    Trailing { extra: usize },
    #[error("MsgPack payload is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("MsgPack payload holds more than {ELEMENTS_MAX} values")]
    TooMany,
    #[error(
        "MsgPack marker 0x{marker:02x} at byte {at} is not supported (extension types are not part of the dialect)"
    )]
    Marker { marker: u8, at: usize },
    #[error("MsgPack string at byte {at} is not UTF-8")]
    Utf8 { at: usize },
    #[error("{what} of {len} is too long for MsgPack, whose lengths have 32 bits")]
    TooLong { what: &'static str, len: usize },
}
