//! Which hosts and ports a guest may connect to, or listen on.

use std::net::Ipv6Addr;
use std::str::FromStr;

use thiserror::Error;

/// The two lists of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPolicy {
    pub connect: NetAllowList,
    pub listen: NetAllowList,
}

impl TcpPolicy {
    /// Allows both directions on the machine itself.
    pub fn loopback() -> TcpPolicy {
        TcpPolicy { connect: NetAllowList::loopback(), listen: NetAllowList::loopback() }
    }

    /// Allows neither direction: every open is denied.
    pub fn nothing() -> TcpPolicy {
        TcpPolicy { connect: NetAllowList::default(), listen: NetAllowList::default() }
    }
}

/// A guest may use a host and port that one of these rules allows. Empty by default, which allows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetAllowList {
    rules: Vec<NetRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetRule {
    /// `loopback`: the hosts `localhost`, `127.0.0.1` and `::1`, any port.
    Loopback,
    /// `any` or `*:*`
    Any,
    /// `HOST:*`
    Host { host: String },
    /// `HOST:PORT`, from 1. Such a rule never allows port 0, which lets the system choose. The host `*` stands for a
    /// listener on all addresses.
    HostAndPort { host: String, port: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{rule}` is not `loopback`, `any`, `HOST:PORT`, `HOST:*` or `*:*`")]
pub struct ParseRuleError {
    pub rule: String,
}

impl NetAllowList {
    pub fn new(rules: Vec<NetRule>) -> NetAllowList {
        NetAllowList { rules }
    }

    pub fn loopback() -> NetAllowList {
        NetAllowList::new(vec![NetRule::Loopback])
    }

    pub fn any() -> NetAllowList {
        NetAllowList::new(vec![NetRule::Any])
    }

    /// Compares the host as text, case-insensitively: names are not resolved first.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        self.rules.iter().any(|rule| rule.allows(host, port))
    }
}

/// Parses rules with commas between them. An empty text is `loopback`, as in the reference's environment variables.
impl FromStr for NetAllowList {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<NetAllowList, ParseRuleError> {
        if text.trim().is_empty() {
            return Ok(NetAllowList::loopback());
        }
        text.split(',').map(|rule| rule.trim().parse()).collect::<Result<_, _>>().map(NetAllowList::new)
    }
}

impl FromStr for NetRule {
    type Err = ParseRuleError;

    fn from_str(text: &str) -> Result<NetRule, ParseRuleError> {
        let error = || ParseRuleError { rule: text.to_owned() };
        match text {
            "loopback" => return Ok(NetRule::Loopback),
            "any" | "*:*" => return Ok(NetRule::Any),
            _ => {}
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).to_owned();
        // Colons belong to IPv6 addresses only.
        if host.is_empty() || (host.contains(':') && host.parse::<Ipv6Addr>().is_err()) {
            return Err(error());
        }
        if port == "*" {
            return Ok(NetRule::Host { host });
        }
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port != 0).ok_or_else(error)?;
        Ok(NetRule::HostAndPort { host, port })
    }
}

impl NetRule {
    fn allows(&self, host: &str, port: u16) -> bool {
        match self {
            NetRule::Any => true,
            NetRule::Loopback => {
                ["localhost", "127.0.0.1", "::1"].iter().any(|local| local.eq_ignore_ascii_case(host))
            }
            NetRule::Host { host: allowed } => allowed.eq_ignore_ascii_case(host),
            NetRule::HostAndPort { host: allowed, port: allowed_port } => {
                port != 0 && *allowed_port == port && allowed.eq_ignore_ascii_case(host)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_compare_text() {
        let list: NetAllowList = "loopback, Example.org:443,db:*,[fe80::1]:80".parse().unwrap();
        let allowed =
            [("LOCALHOST", 1), ("::1", 0), ("example.ORG", 443), ("db", 0), ("db", 9), ("fe80::1", 80)];
        for (host, port) in allowed {
            assert!(list.allows(host, port), "{host}:{port}");
        }
        for (host, port) in [("127.0.0.2", 1), ("example.org", 80), ("example.org", 0), ("*", 1), ("", 1)] {
            assert!(!list.allows(host, port), "{host}:{port}");
        }
        assert!(!NetAllowList::default().allows("localhost", 1), "nothing is allowed by default");
        assert!("".parse::<NetAllowList>().unwrap().allows("127.0.0.1", 1));
        assert!(
            "*:80".parse::<NetAllowList>().is_ok_and(|list| list.allows("*", 80) && !list.allows("x", 80))
        );
        for wrong in
            ["x", ":1", "x:y", "x:65536", "loopback,,", "x:0", "x:+80", "1.2.3.4:5:6", "x:", "[x:1]:2"]
        {
            assert!(wrong.parse::<NetAllowList>().is_err(), "{wrong}");
        }
    }
}
