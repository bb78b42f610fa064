//! Errors of the operating system as the error codes of zABI.

use std::io;

use millrace_reactor::ZabiError;
use rustix::io::Errno;

/// The error code for an error of a socket. `EADDRINUSE` is `Again`, as in the reference: the address may be free
/// later.
pub(crate) fn socket_error(error: &io::Error) -> ZabiError {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => ZabiError::Again,
        Some(Errno::BADF) => ZabiError::Closed,
        Some(Errno::ACCESS | Errno::PERM) => ZabiError::Denied,
        Some(Errno::NOENT) => ZabiError::NoEntry,
        Some(Errno::NOMEM) => ZabiError::OutOfMemory,
        Some(Errno::INVAL | Errno::ADDRNOTAVAIL) => ZabiError::Invalid,
        Some(Errno::ADDRINUSE) => ZabiError::Again,
        _ if error.kind() == io::ErrorKind::WouldBlock => ZabiError::Again,
        _ => ZabiError::Io,
    }
}

/// The error code for an error of a file.
pub(crate) fn file_error(error: &io::Error) -> ZabiError {
    match Errno::from_io_error(error) {
        Some(Errno::EXIST | Errno::NOTEMPTY | Errno::INVAL | Errno::ISDIR) => ZabiError::Invalid,
        Some(Errno::BADF) => ZabiError::Closed,
        Some(Errno::ACCESS | Errno::PERM | Errno::LOOP) => ZabiError::Denied,
        Some(Errno::NOENT | Errno::NOTDIR) => ZabiError::NoEntry,
        Some(Errno::NOMEM) => ZabiError::OutOfMemory,
        Some(Errno::AGAIN) => ZabiError::Again,
        Some(_) => ZabiError::Io,
        // An error without a number comes from `cap-std`: the path would have left the folder.
        None if error.kind() == io::ErrorKind::PermissionDenied => ZabiError::Denied,
        None if error.kind() == io::ErrorKind::InvalidInput => ZabiError::Invalid,
        None => ZabiError::Io,
    }
}
