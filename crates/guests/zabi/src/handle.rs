//! The operations of an open handle. Each capability has its own kind of handle; `sys/loop` is the exception
//! (`sys_loop.rs`), because a loop watches the other handles.

use std::fmt;
use std::os::fd::RawFd;

use millrace_reactor::{Readiness, ZabiError};
use thiserror::Error;

use crate::handles::Handles;
use crate::memory::GuestMemory;
use crate::signals::SignalId;

/// The flags of `zi_handle_hflags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleFlags(pub u32);

impl HandleFlags {
    /// The flags of an unknown handle.
    pub const NONE: HandleFlags = HandleFlags(0);
    const READABLE: u32 = 1;
    const WRITABLE: u32 = 2;
    const ENDABLE: u32 = 4;
    pub const READ: HandleFlags = HandleFlags(HandleFlags::READABLE | HandleFlags::ENDABLE);
    pub const WRITE: HandleFlags = HandleFlags(HandleFlags::WRITABLE | HandleFlags::ENDABLE);
    pub const READ_WRITE: HandleFlags =
        HandleFlags(HandleFlags::READABLE | HandleFlags::WRITABLE | HandleFlags::ENDABLE);
}

/// How a loop learns that a handle is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchSource {
    /// The operating system polls this descriptor, which stays open as long as the handle.
    Descriptor(RawFd),
    /// The capability computes the state, and tells each change to the signal.
    Computed { signal: SignalId, state: Readiness },
}

/// The operation of HANDLE_OP failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum HandleOpError {
    #[error("the handle does not support this operation")]
    NotSupported,
    #[error("the operation failed: {0}")]
    Failed(#[from] ZabiError),
}

/// An open handle. While one of its methods runs, the handle itself is not in the table that the method is given.
pub(crate) trait OpenHandle: fmt::Debug + Send {
    fn flags(&self) -> HandleFlags;

    /// Reads into `to`, which is not empty. Returns 0 at the end of a byte stream, [`ZabiError::Again`] if there is
    /// nothing to read yet.
    fn read(&mut self, to: &mut [u8], handles: &mut Handles) -> Result<usize, ZabiError>;

    /// Writes `from`, which is not empty. Addresses in a request point into `memory`.
    fn write(
        &mut self,
        from: &[u8],
        memory: &dyn GuestMemory,
        handles: &mut Handles,
    ) -> Result<usize, ZabiError>;

    /// Returns `None` if the handle cannot be watched.
    fn watch_source(&self) -> Option<WatchSource> {
        None
    }

    /// Whether a read that returned `count` of `room` bytes has left nothing to read. Only for handles with a
    /// descriptor.
    fn is_drained(&self, count: usize, room: usize) -> bool {
        count < room
    }

    fn shut_down_writing(&mut self) -> Result<(), HandleOpError> {
        Err(HandleOpError::NotSupported)
    }
}
