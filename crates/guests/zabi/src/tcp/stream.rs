//! A TCP connection: a byte stream in each direction.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

use millrace_reactor::ZabiError;

use crate::errno::socket_error;
use crate::handle::{HandleFlags, HandleOpError, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;

#[derive(Debug)]
pub(crate) struct TcpStreamHandle {
    stream: TcpStream,
    state: StreamState,
    is_write_shut: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Connecting,
    Connected,
    /// The connection could not be made or was lost. The operating system reports the error once; the guest gets it
    /// from every call.
    Failed(ZabiError),
}

impl TcpStreamHandle {
    pub(crate) fn new(stream: TcpStream, is_connected: bool) -> TcpStreamHandle {
        let state = if is_connected { StreamState::Connected } else { StreamState::Connecting };
        TcpStreamHandle { stream, state, is_write_shut: false }
    }

    /// Checks that the stream can be used. Returns `Again` while the connection is being made.
    fn check_connected(&mut self) -> Result<(), ZabiError> {
        match self.state {
            StreamState::Connected => Ok(()),
            StreamState::Failed(code) => Err(code),
            StreamState::Connecting => {
                if self.stream.take_error().is_ok_and(|error| error.is_some()) {
                    return self.fail(ZabiError::Io);
                }
                match self.stream.peer_addr() {
                    Ok(_) => {
                        self.state = StreamState::Connected;
                        Ok(())
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(ZabiError::Again),
                    Err(_) => self.fail(ZabiError::Io),
                }
            }
        }
    }

    fn fail<T>(&mut self, code: ZabiError) -> Result<T, ZabiError> {
        self.state = StreamState::Failed(code);
        Err(code)
    }

    fn finish(&mut self, result: io::Result<usize>) -> Result<usize, ZabiError> {
        match result.map_err(|error| socket_error(&error)) {
            Ok(count) => Ok(count),
            Err(ZabiError::Again) => Err(ZabiError::Again),
            Err(code) => self.fail(code),
        }
    }
}

impl OpenHandle for TcpStreamHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ_WRITE
    }

    fn read(&mut self, to: &mut [u8], _handles: &mut Handles) -> Result<usize, ZabiError> {
        self.check_connected()?;
        let result = retry(|| self.stream.read(to));
        self.finish(result)
    }

    fn write(
        &mut self,
        from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        if self.is_write_shut {
            return Err(ZabiError::Closed);
        }
        self.check_connected()?;
        match retry(|| self.stream.write(from)) {
            // Bytes that the peer sent before it closed can still be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ZabiError::Io),
            result => self.finish(result),
        }
    }

    fn watch_source(&self) -> Option<WatchSource> {
        Some(WatchSource::Descriptor(self.stream.as_raw_fd()))
    }

    fn shut_down_writing(&mut self) -> Result<(), HandleOpError> {
        if self.is_write_shut {
            return Ok(());
        }
        self.check_connected()?;
        match self.stream.shutdown(Shutdown::Write) {
            Ok(()) => {
                self.is_write_shut = true;
                Ok(())
            }
            Err(error) => Err(socket_error(&error).into()),
        }
    }
}

pub(super) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
