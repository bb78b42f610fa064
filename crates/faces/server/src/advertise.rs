//! The URL that a server of a shared store advertises: clients and other servers are sent there while it leads.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::Uri;

/// Longer than every host name and port.
const URL_BYTES_MAX: usize = 300;

/// `http://HOST:PORT` or `https://HOST[:PORT]`, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertisedUrl(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is no address of a server: {why}; write http://HOST:PORT or https://HOST[:PORT]")]
pub struct AdvertiseError {
    found: String,
    why: &'static str,
}

impl AdvertisedUrl {
    /// The URL of a server that was told none: the address that it listens on.
    pub fn of_listener(listen: SocketAddr, tls: bool) -> AdvertisedUrl {
        AdvertisedUrl(format!("{}://{listen}", if tls { "https" } else { "http" }))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns why servers and clients on other machines cannot use this URL, as far as the URL itself shows it.
    pub fn doubt(&self) -> Option<String> {
        let uri: Uri = self.0.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']);
        let ip = host.parse::<IpAddr>().ok();
        let why = if ip.is_some_and(|ip| ip.is_unspecified()) {
            "is no address that anybody can connect to"
        } else if host.eq_ignore_ascii_case("localhost") || ip.is_some_and(|ip| ip.is_loopback()) {
            "leads every other machine to itself"
        } else {
            return None;
        };
        Some(format!("this server advertises {self}, which {why}: give --advertise http(s)://HOST:PORT"))
    }
}

impl FromStr for AdvertisedUrl {
    type Err = AdvertiseError;

    fn from_str(text: &str) -> Result<AdvertisedUrl, AdvertiseError> {
        let bad = |why| AdvertiseError { found: text.chars().take(URL_BYTES_MAX).collect(), why };
        if text.len() > URL_BYTES_MAX {
            return Err(bad("it is too long"));
        }
        let uri: Uri = text.parse().map_err(|_| bad("it cannot be read"))?;
        let authority = uri.authority().ok_or_else(|| bad("the host is missing"))?;
        match (uri.scheme_str(), authority.port_u16()) {
            // Clients of Millrace and of HTTP disagree about the port that is meant.
            (Some("http"), None) => return Err(bad("the port is missing")),
            (_, Some(0)) => return Err(bad("port 0 is no port")),
            (Some("http" | "https"), _) => {}
            _ => return Err(bad("it begins with neither http:// nor https://")),
        }
        if authority.host().is_empty() {
            return Err(bad("the host is missing"));
        }
        if authority.as_str().contains('@') {
            return Err(bad("it names a user"));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
            return Err(bad("it has a path"));
        }
        Ok(AdvertisedUrl(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for AdvertisedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (text, shown) in [
            ("http://10.0.0.1:7070", "http://10.0.0.1:7070"),
            ("http://10.0.0.1:7070/", "http://10.0.0.1:7070"),
            ("https://broker.example", "https://broker.example"),
            ("https://[2001:db8::1]:7443/", "https://[2001:db8::1]:7443"),
        ] {
            let url: AdvertisedUrl = text.parse().unwrap();
            assert_eq!((url.as_str(), url.doubt()), (shown, None));
        }
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused() {
        let long = format!("https://{}.example", "x".repeat(URL_BYTES_MAX));
        for text in [
            "",
            "10.0.0.1:7070",
            "broker.example",
            "http://broker.example",
            "http://:7070",
            "http://10.0.0.1:0",
            "http://10.0.0.1:70700",
            "ws://10.0.0.1:7070",
            "http://user:secret@10.0.0.1:7070",
            "https://broker.example/bus",
            "https://broker.example?a=b",
            "https://broker.example/#a",
            "http://a b:7070",
            &long,
        ] {
            assert!(text.parse::<AdvertisedUrl>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn addresses_that_others_cannot_use_are_doubted() {
        for (listen, tls, shown) in [
            ("127.0.0.1:7070", false, "http://127.0.0.1:7070"),
            ("0.0.0.0:7070", true, "https://0.0.0.0:7070"),
            ("[::]:7070", false, "http://[::]:7070"),
            ("[::1]:7070", false, "http://[::1]:7070"),
        ] {
            let url = AdvertisedUrl::of_listener(listen.parse().unwrap(), tls);
            assert_eq!(url.as_str(), shown);
            assert!(url.doubt().is_some_and(|doubt| doubt.contains("--advertise")), "{shown}");
        }
        assert!("http://localhost:7070".parse::<AdvertisedUrl>().unwrap().doubt().is_some());
        let reached = AdvertisedUrl::of_listener("192.168.1.5:7070".parse().unwrap(), false);
        assert_eq!(reached.doubt(), None);
    }
}
