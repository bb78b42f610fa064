//! What a process may use. Nothing is granted unless it is named.

use crate::catalog::Capability;
use crate::tcp::TcpPolicy;

/// The capabilities of one process:
///
/// ```
/// use millrace_zabi::{Grants, TcpPolicy};
///
/// let grants = Grants::none().sys_loop().net_tcp(TcpPolicy::loopback());
/// ```
///
/// A capability that is not granted is not listed, and opening it returns -4.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    pub(crate) sys_loop: bool,
    pub(crate) net_tcp: Option<TcpPolicy>,
}

impl Grants {
    pub fn none() -> Grants {
        Grants::default()
    }

    /// Waiting for handles and timers.
    #[must_use]
    pub fn sys_loop(mut self) -> Grants {
        self.sys_loop = true;
        self
    }

    /// Connections to, and listeners on, what the policy allows.
    #[must_use]
    pub fn net_tcp(mut self, policy: TcpPolicy) -> Grants {
        self.net_tcp = Some(policy);
        self
    }

    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::SysLoop => self.sys_loop,
            Capability::NetTcp => self.net_tcp.is_some(),
            _ => false,
        }
    }

    /// Returns what is granted, in the order of the list that the guest sees.
    pub fn list(&self) -> Vec<Capability> {
        Capability::ALL.into_iter().filter(|capability| self.has(*capability)).collect()
    }
}
