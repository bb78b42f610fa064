//! A TCP listener: reading it accepts connections, each a record of 32 bytes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use millrace_reactor::{HandleNumber, ZabiError};

use super::params::StreamOptions;
use super::socket::set_options;
use super::stream::{TcpStreamHandle, retry};
use crate::errno::socket_error;
use crate::handle::{HandleFlags, OpenHandle, WatchSource};
use crate::handles::Handles;
use crate::memory::GuestMemory;

pub(crate) const ACCEPT_RECORD_BYTES: usize = 32;

#[derive(Debug)]
pub(crate) struct TcpListenerHandle {
    listener: TcpListener,
    port: u16,
    options: StreamOptions,
    /// Whether the last read has accepted every connection that was waiting.
    is_drained: bool,
}

impl TcpListenerHandle {
    pub(super) fn new(listener: TcpListener, options: StreamOptions) -> io::Result<TcpListenerHandle> {
        let port = listener.local_addr()?.port();
        Ok(TcpListenerHandle { listener, port, options, is_drained: false })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Accepts one connection and opens a handle for it.
    fn accept(&mut self, handles: &mut Handles) -> Result<[u8; ACCEPT_RECORD_BYTES], ZabiError> {
        handles.reserve_socket()?;
        let accepted = self.accept_stream().and_then(|(stream, peer)| {
            let number = handles.open(Box::new(TcpStreamHandle::new(stream, true)))?;
            Ok(record(number, peer, self.port))
        });
        accepted.inspect_err(|_| handles.release_socket())
    }

    fn accept_stream(&mut self) -> Result<(TcpStream, SocketAddr), ZabiError> {
        loop {
            match retry(|| self.listener.accept()) {
                Ok((stream, peer)) => match self.prepare(stream) {
                    Ok(stream) => return Ok((stream, peer)),
                    // The peer has gone already.
                    Err(error) => tracing::debug!(%error, "an accepted connection could not be used"),
                },
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    let code = socket_error(&error);
                    self.is_drained = code == ZabiError::Again;
                    return Err(code);
                }
            }
        }
    }

    fn prepare(&self, stream: TcpStream) -> io::Result<TcpStream> {
        let socket = socket2::Socket::from(stream);
        socket.set_nonblocking(true)?;
        set_options(&socket, self.options)?;
        Ok(socket.into())
    }
}

impl OpenHandle for TcpListenerHandle {
    fn flags(&self) -> HandleFlags {
        HandleFlags::READ
    }

    /// Accepts as many connections as there is room for records. An error after the first record is reported by the
    /// next read.
    fn read(&mut self, to: &mut [u8], handles: &mut Handles) -> Result<usize, ZabiError> {
        if to.len() < ACCEPT_RECORD_BYTES {
            self.is_drained = false;
            return Err(ZabiError::Bounds);
        }
        self.is_drained = false;
        let mut count = 0;
        for room in to.chunks_exact_mut(ACCEPT_RECORD_BYTES) {
            match self.accept(handles) {
                Ok(record) => room.copy_from_slice(&record),
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            count += ACCEPT_RECORD_BYTES;
        }
        Ok(count)
    }

    fn write(
        &mut self,
        _from: &[u8],
        _memory: &dyn GuestMemory,
        _handles: &mut Handles,
    ) -> Result<usize, ZabiError> {
        Err(ZabiError::NotSupported)
    }

    fn watch_source(&self) -> Option<WatchSource> {
        Some(WatchSource::Descriptor(self.listener.as_raw_fd()))
    }

    fn is_drained(&self, _count: usize, _room: usize) -> bool {
        self.is_drained
    }
}

/// The record of an accepted connection: `u32 handle, u32 peer port, 16 bytes of peer address (IPv4 mapped), u32 local
/// port, u32 0`.
fn record(handle: HandleNumber, peer: SocketAddr, local_port: u16) -> [u8; ACCEPT_RECORD_BYTES] {
    let address = match peer.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut record = [0; ACCEPT_RECORD_BYTES];
    record[..4].copy_from_slice(&handle.get().to_le_bytes());
    record[4..8].copy_from_slice(&u32::from(peer.port()).to_le_bytes());
    record[8..24].copy_from_slice(&address.octets());
    record[24..28].copy_from_slice(&u32::from(local_port).to_le_bytes());
    record
}
