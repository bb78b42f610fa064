//! Makes sockets with the requested options: nonblocking, and closed when another program is executed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use millrace_reactor::ZabiError;
use socket2::{Domain, Protocol, Socket, Type};

use super::listener::TcpListenerHandle;
use super::params::{OpenParams, StreamOptions};
use super::stream::TcpStreamHandle;
use crate::errno::socket_error;
use crate::limits::Limits;

/// Begins a connection to the first address that does not fail at once. Whether the connection succeeds shows later.
pub(super) fn connect(params: &OpenParams, limits: &Limits) -> Result<TcpStreamHandle, ZabiError> {
    let mut last = ZabiError::NoEntry;
    for address in resolve(params, limits.tcp_addresses_max)? {
        match begin_connection(address, params.options) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = socket_error(&error),
        }
    }
    // An error of a connection must not look like «try again».
    Err(if last == ZabiError::Again { ZabiError::Io } else { last })
}

/// Listens on the first address that can be bound.
pub(super) fn listen(params: &OpenParams, limits: &Limits) -> Result<TcpListenerHandle, ZabiError> {
    let listener = bind_listener(params, limits)?;
    TcpListenerHandle::new(listener, params.options).map_err(|error| socket_error(&error))
}

/// Binds a nonblocking listener.
pub(crate) fn bind_listener(params: &OpenParams, limits: &Limits) -> Result<TcpListener, ZabiError> {
    let mut last = ZabiError::NoEntry;
    for address in resolve(params, limits.tcp_addresses_max)? {
        match bind(address, params, limits.tcp_backlog_max) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = socket_error(&error),
        }
    }
    Err(last)
}

fn begin_connection(address: SocketAddr, options: StreamOptions) -> io::Result<TcpStreamHandle> {
    let socket = new_socket(address)?;
    set_options(&socket, options)?;
    let is_connected = match socket.connect(&address.into()) {
        Ok(()) => true,
        Err(error) if is_in_progress(&error) => false,
        Err(error) => return Err(error),
    };
    Ok(TcpStreamHandle::new(socket.into(), is_connected))
}

fn bind(address: SocketAddr, params: &OpenParams, backlog_max: u32) -> io::Result<TcpListener> {
    let socket = new_socket(address)?;
    socket.set_reuse_address(true)?;
    if params.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(params.ipv6_only)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(params.backlog.min(backlog_max)).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Sets the options that a guest asked for; used for accepted streams as well.
pub(super) fn set_options(socket: &Socket, options: StreamOptions) -> io::Result<()> {
    if options.no_delay {
        socket.set_tcp_nodelay(true)?;
    }
    if options.keep_alive {
        socket.set_keepalive(true)?;
    }
    Ok(())
}

fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn is_in_progress(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == io::ErrorKind::WouldBlock || Errno::from_io_error(error) == Some(Errno::INPROGRESS)
}

/// Returns the addresses of the host. Names are looked up by the system, which blocks.
fn resolve(params: &OpenParams, addresses_max: usize) -> Result<Vec<SocketAddr>, ZabiError> {
    let at = |ip: IpAddr| SocketAddr::new(ip, params.port);
    if params.is_listener && params.host == "*" {
        let any_v6 = at(Ipv6Addr::UNSPECIFIED.into());
        // On a machine without IPv6 the first address cannot be bound.
        return Ok(if params.ipv6_only {
            vec![any_v6]
        } else {
            vec![any_v6, at(Ipv4Addr::UNSPECIFIED.into())]
        });
    }
    if let Ok(ip) = params.host.parse::<IpAddr>() {
        return Ok(vec![at(ip)]);
    }
    let found = (params.host.as_str(), params.port).to_socket_addrs().map_err(|error| {
        tracing::debug!(%error, host = params.host, "a guest's name was not resolved");
        ZabiError::NoEntry
    })?;
    Ok(found.take(addresses_max).collect())
}
