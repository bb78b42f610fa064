//! `net/tcp`: byte streams and listeners, never blocking.

mod listener;
mod params;
mod policy;
mod socket;
mod stream;

use millrace_reactor::ZabiError;

use crate::handle::OpenHandle;
use crate::limits::Limits;
use crate::memory::GuestMemory;

pub(crate) use params::OpenParams;
pub use policy::{NetAllowList, NetRule, ParseRuleError, TcpPolicy};
pub(crate) use socket::bind_listener;

/// Opens a connection or a listener. The parameters were checked against the policy. A name is resolved here, which
/// blocks; a connection is only begun.
pub(crate) fn open(
    params: &OpenParams,
    memory: &mut dyn GuestMemory,
    limits: &Limits,
) -> Result<Box<dyn OpenHandle>, ZabiError> {
    if !params.is_listener {
        return Ok(Box::new(socket::connect(params, limits)?));
    }
    // Checked first: a listener that is open but unknown to the guest would be useless.
    if let Some(address) = params.bound_port_address {
        memory.bytes_mut(address, 4)?;
    }
    let listener = socket::listen(params, limits)?;
    if let Some(address) = params.bound_port_address {
        memory.bytes_mut(address, 4)?.copy_from_slice(&u32::from(listener.port()).to_le_bytes());
    }
    Ok(Box::new(listener))
}
