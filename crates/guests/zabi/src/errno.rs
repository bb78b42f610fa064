//! Errors of the operating system as the error codes of zABI.

use std::io;

use millrace_reactor::ErrorCode;
use rustix::io::Errno;

/// The error code for an error of a socket. `EADDRINUSE` is `Again`, as in the reference: the address may be free
/// later.
pub(crate) fn socket_error(error: &io::Error) -> ErrorCode {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => ErrorCode::Again,
        Some(Errno::BADF) => ErrorCode::Closed,
        Some(Errno::ACCESS | Errno::PERM) => ErrorCode::Denied,
        Some(Errno::NOENT) => ErrorCode::NoEntry,
        Some(Errno::NOMEM) => ErrorCode::OutOfMemory,
        Some(Errno::INVAL | Errno::ADDRNOTAVAIL) => ErrorCode::Invalid,
        Some(Errno::ADDRINUSE) => ErrorCode::Again,
        _ if error.kind() == io::ErrorKind::WouldBlock => ErrorCode::Again,
        _ => ErrorCode::Io,
    }
}

/// The error code for an error of a file.
pub(crate) fn file_error(error: &io::Error) -> ErrorCode {
    match Errno::from_io_error(error) {
        Some(Errno::EXIST | Errno::NOTEMPTY | Errno::INVAL | Errno::ISDIR) => ErrorCode::Invalid,
        Some(Errno::BADF) => ErrorCode::Closed,
        Some(Errno::ACCESS | Errno::PERM | Errno::LOOP) => ErrorCode::Denied,
        Some(Errno::NOENT | Errno::NOTDIR) => ErrorCode::NoEntry,
        Some(Errno::NOMEM) => ErrorCode::OutOfMemory,
        Some(Errno::AGAIN) => ErrorCode::Again,
        Some(_) => ErrorCode::Io,
        // An error without a number comes from `cap-std`: the path would have left the folder.
        None if error.kind() == io::ErrorKind::PermissionDenied => ErrorCode::Denied,
        None if error.kind() == io::ErrorKind::InvalidInput => ErrorCode::Invalid,
        None => ErrorCode::Io,
    }
}
