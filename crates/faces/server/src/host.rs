//! Checks the `Host` header: under which names this server may be called.
//!
//! A web page can point a name of its own at 127.0.0.1 (DNS rebinding): its requests then carry no foreign origin, and
//! only the `Host` they name gives them away. So unless access is open anyway, `Host` must be a name that is known to
//! lead here: a loopback address, `localhost`, the address listened on, or the host of an allowed origin. With tokens
//! the name does not matter: such a page has none to show.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, header};
use millrace_wire::ErrorCode;

use crate::refusal::Refusal;
use crate::settings::ServerSettings;

/// Accepts requests without the header: no browser sends such a request.
pub(crate) fn check(headers: &HeaderMap, listen: IpAddr, settings: &ServerSettings) -> Result<(), Refusal> {
    if settings.insecure || !settings.tokens.is_empty() {
        return Ok(());
    }
    let foreign = headers
        .get_all(header::HOST)
        .iter()
        .map(|host| host.to_str().unwrap_or("(not text)"))
        .find(|host| !is_ours(host, listen, &settings.allow_origins));
    match foreign {
        None => Ok(()),
        Some(host) => Err(Refusal::new(
            ErrorCode::Forbidden,
            format!(
                "host {host:.100?} is not known to be this server: call it by a loopback address or localhost, or start \
                 it with [[auth.tokens]], with --allow-origin naming this host (http://HOST), or with --insecure"
            ),
        )),
    }
}

/// Whether `authority` names this server. The port does not matter: a tunnel may end on another one.
fn is_ours(authority: &str, listen: IpAddr, allowed: &[String]) -> bool {
    let name = host_of(authority);
    if let Ok(ip) = name.parse::<IpAddr>() {
        let ip = ip.to_canonical();
        if ip.is_loopback() || ip == listen.to_canonical() {
            return true;
        }
    }
    let is_local = name.eq_ignore_ascii_case("localhost");
    is_local
        || allowed.iter().any(|origin| {
            let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
            origin == "*"
                || (!authority.is_empty()
                    && host_of(authority.trim_end_matches('/')).eq_ignore_ascii_case(name))
        })
}

/// The host without its port, its brackets and the dot that ends a full name.
fn host_of(authority: &str) -> &str {
    if let Some((inside, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return inside;
    }
    if authority.parse::<SocketAddr>().is_err() && authority.parse::<IpAddr>().is_ok() {
        return authority;
    }
    let name = authority.rsplit_once(':').map_or(authority, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_here_are_told_from_others() {
        let allowed = ["https://app.example".to_owned(), "http://[2001:db8::1]:80/".to_owned()];
        let ours = |host| is_ours(host, IpAddr::from([192, 168, 1, 5]), &allowed);
        for host in [
            "127.0.0.1",
            "127.0.0.1:7070",
            "127.9.9.9:1",
            "[::1]:7070",
            "[::1]",
            "[::ffff:127.0.0.1]:7070",
            "localhost",
            "LocalHost:9",
            "localhost.:7070",
            "192.168.1.5:7070",
            "app.example",
            "App.Example:8443",
            "[2001:db8::1]:7070",
        ] {
            assert!(ours(host), "{host}");
        }
        for host in [
            "",
            ":7070",
            "evil.example",
            "evil.example:7070",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7070",
            "evil.localhost.example",
            "app.example.evil",
            "192.168.1.6",
            "[2001:db8::2]",
            "[",
        ] {
            assert!(!ours(host), "{host}");
        }
        assert!(is_ours("any.example", IpAddr::from([127, 0, 0, 1]), &["*".to_owned()]));
    }
}
