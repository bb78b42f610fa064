//! The error codes of zABI: every call of a guest returns one of these ten numbers, or a result that is not negative.

use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[repr(i32)]
pub enum ZabiError {
    #[error("invalid argument")]
    Invalid = -1,
    #[error("out of bounds")]
    Bounds = -2,
    #[error("no such entry")]
    NoEntry = -3,
    #[error("denied by policy")]
    Denied = -4,
    #[error("closed")]
    Closed = -5,
    /// The call would block, or there is no room for its answer: read what is queued, wait in POLL, call again.
    #[error("would block, try again")]
    Again = -6,
    #[error("not supported")]
    NotSupported = -7,
    #[error("out of memory")]
    OutOfMemory = -8,
    #[error("input or output error")]
    Io = -9,
    #[error("internal error")]
    Internal = -10,
}

impl ZabiError {
    pub const ALL: [ZabiError; 10] = [
        ZabiError::Invalid,
        ZabiError::Bounds,
        ZabiError::NoEntry,
        ZabiError::Denied,
        ZabiError::Closed,
        ZabiError::Again,
        ZabiError::NotSupported,
        ZabiError::OutOfMemory,
        ZabiError::Io,
        ZabiError::Internal,
    ];

    /// Returns the number that the guest sees.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Returns the error with this number; `None` for numbers that zABI does not define.
    pub fn from_code(code: i32) -> Option<ZabiError> {
        ZabiError::ALL.into_iter().find(|error| error.code() == code)
    }
}
