//! Handles 0, 1 and 2: the program's own descriptors, without a buffer in between, so that the guest may use them
//! through the C library too. Reads and writes block as long as the descriptors do, and need no turn at the process: a
//! thread that waits for input blocks no other.

use millrace_zabi::ZabiError;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdin, stdout};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StandardHandle {
    Input,
    Output,
    Error,
}

impl StandardHandle {
    pub(crate) fn of(handle: i32) -> Option<StandardHandle> {
        match handle {
            0 => Some(StandardHandle::Input),
            1 => Some(StandardHandle::Output),
            2 => Some(StandardHandle::Error),
            _ => None,
        }
    }

    /// Returns 0 at the end of the input, and if `to` is empty.
    pub(crate) fn read(self, to: &mut [u8]) -> Result<usize, ZabiError> {
        match self {
            _ if to.is_empty() => Ok(0),
            StandardHandle::Input => retry(|| rustix::io::read(stdin(), &mut *to)),
            StandardHandle::Output | StandardHandle::Error => Err(ZabiError::Denied),
        }
    }

    pub(crate) fn write(self, from: &[u8]) -> Result<usize, ZabiError> {
        match self {
            _ if from.is_empty() => Ok(0),
            StandardHandle::Input => Err(ZabiError::Denied),
            StandardHandle::Output => retry(|| rustix::io::write(stdout(), from)),
            StandardHandle::Error => retry(|| rustix::io::write(stderr(), from)),
        }
    }
}

fn retry(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<usize, ZabiError> {
    loop {
        return match call() {
            Err(Errno::INTR) => continue,
            Ok(count) => Ok(count),
            Err(Errno::AGAIN) => Err(ZabiError::Again),
            Err(Errno::PIPE | Errno::BADF) => Err(ZabiError::Closed),
            Err(_) => Err(ZabiError::Io),
        };
    }
}
