//! The key that connections and memory are accounted under: the agent of a token, or the address of a peer without one.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use millrace_model::Actor;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum CallerKey {
    Agent(Actor),
    /// An IPv4 address, or the /64 network of an IPv6 address: one machine may use all addresses of its network.
    Network(IpAddr),
}

/// Bits of an IPv6 address that name the host within its network.
const IPV6_HOST_BITS: u32 = 64;

impl CallerKey {
    pub(crate) fn of_address(addr: IpAddr) -> CallerKey {
        CallerKey::Network(match addr.to_canonical() {
            IpAddr::V4(addr) => IpAddr::V4(addr),
            IpAddr::V6(addr) => {
                IpAddr::V6(Ipv6Addr::from_bits(addr.to_bits() >> IPV6_HOST_BITS << IPV6_HOST_BITS))
            }
        })
    }
}

impl fmt::Display for CallerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallerKey::Agent(agent) => write!(f, "agent {agent}"),
            CallerKey::Network(addr) => write!(f, "address {addr}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_caller() {
        let key = |text: &str| CallerKey::of_address(text.parse().unwrap());
        assert_eq!(key("2001:db8:1:2::1"), key("2001:db8:1:2:ffff::9"));
        assert_ne!(key("2001:db8:1:2::1"), key("2001:db8:1:3::1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
        assert_eq!(key("::ffff:10.0.0.1"), key("10.0.0.1"));
    }
}
