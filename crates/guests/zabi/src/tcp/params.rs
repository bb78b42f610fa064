//! The parameters of opening `net/tcp`.

use millrace_reactor::ZabiError;
use millrace_reactor::zcl1::{FieldError, FieldReader};

use super::policy::TcpPolicy;
use crate::memory::GuestMemory;

const HOST_BYTES_MAX: u32 = 255;
const BACKLOG: u32 = 128;
const BACKLOG_MAX: u32 = 65_535;

const LISTEN: u32 = 1;
/// Always on for listeners, whether asked for or not.
const REUSE_ADDRESS: u32 = 2;
const REUSE_PORT: u32 = 4;
const IPV6_ONLY: u32 = 8;
const NO_DELAY: u32 = 0x10;
const KEEP_ALIVE: u32 = 0x20;
const KNOWN_FLAGS: u32 = LISTEN | REUSE_ADDRESS | REUSE_PORT | IPV6_ONLY | NO_DELAY | KEEP_ALIVE;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenParams {
    /// The host as given, without the brackets around an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_listener: bool,
    pub(crate) reuse_port: bool,
    pub(crate) ipv6_only: bool,
    pub(crate) options: StreamOptions,
    pub(crate) backlog: u32,
    /// The address to which the port of a listener is written, as `u32`.
    pub(crate) bound_port_address: Option<u64>,
}

/// Options that an accepted stream inherits from its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    pub(crate) no_delay: bool,
    pub(crate) keep_alive: bool,
}

impl OpenParams {
    /// Decodes the parameters: at least 20 bytes with address and length of the host, port, flags; then backlog and the
    /// address for the bound port, if they are there.
    pub(crate) fn decode(params: &[u8], memory: &dyn GuestMemory) -> Result<OpenParams, ZabiError> {
        let mut fields = FieldReader::new(params);
        let mut required =
            || Ok::<_, FieldError>((fields.u64()?, fields.u32()?, fields.u32()?, fields.u32()?));
        let (host, host_bytes, port, flags) = required().map_err(|_| ZabiError::Invalid)?;
        let backlog = fields.u32().ok();
        let bound_port_address = fields.u64().ok();
        if host_bytes == 0 || host_bytes > HOST_BYTES_MAX || flags & !KNOWN_FLAGS != 0 {
            return Err(ZabiError::Invalid);
        }
        let is_listener = flags & LISTEN != 0;
        let port = u16::try_from(port).map_err(|_| ZabiError::Invalid)?;
        let backlog = backlog.filter(|backlog| *backlog != 0).unwrap_or(BACKLOG);
        if (port == 0 && !is_listener) || backlog > BACKLOG_MAX {
            return Err(ZabiError::Invalid);
        }
        Ok(OpenParams {
            host: decode_host(memory.bytes(host, host_bytes)?)?,
            port,
            is_listener,
            reuse_port: flags & REUSE_PORT != 0,
            ipv6_only: flags & IPV6_ONLY != 0,
            options: StreamOptions { no_delay: flags & NO_DELAY != 0, keep_alive: flags & KEEP_ALIVE != 0 },
            backlog,
            bound_port_address: bound_port_address.filter(|address| *address != 0 && is_listener),
        })
    }

    /// The parameters of a listener of `net/http`.
    pub(crate) fn http_listener(host: &str, port: u16) -> Result<OpenParams, ZabiError> {
        if host.len() > HOST_BYTES_MAX as usize {
            return Err(ZabiError::Invalid);
        }
        Ok(OpenParams {
            host: decode_host(host.as_bytes())?,
            port,
            is_listener: true,
            reuse_port: false,
            ipv6_only: false,
            options: StreamOptions { no_delay: true, keep_alive: false },
            backlog: BACKLOG,
            bound_port_address: None,
        })
    }

    /// Checks the host as the guest wrote it against the policy, before any name is resolved.
    pub(crate) fn check(&self, policy: &TcpPolicy) -> Result<(), ZabiError> {
        let list = if self.is_listener { &policy.listen } else { &policy.connect };
        if list.allows(&self.host, self.port) { Ok(()) } else { Err(ZabiError::Denied) }
    }
}

fn decode_host(bytes: &[u8]) -> Result<String, ZabiError> {
    let host = std::str::from_utf8(bytes).map_err(|_| ZabiError::Invalid)?;
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if inner.is_empty() || inner.contains('\0') { Err(ZabiError::Invalid) } else { Ok(inner.to_owned()) }
}
