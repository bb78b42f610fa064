//! The address of a server: one URL for the WebSocket, from which the HTTP address follows.

use std::fmt;

use millrace_model::Namespace;
use tokio_tungstenite::tungstenite::http::Uri;

use crate::error::ClientError;

/// The port of a server without TLS.
const PORT_DEFAULT: u16 = 7070;
/// With `wss://` and `https://` there is usually a proxy, on the scheme's own port.
const TLS_PORT_DEFAULT: u16 = 443;
const ACCEPTED: &str = "give ws://HOST:PORT/, wss://HOST:PORT/ (TLS), http(s)://HOST:PORT/ or HOST:PORT";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub path: String,
    /// `wss://` or `https://`.
    pub tls: bool,
}

impl Endpoint {
    /// Parses `ws://HOST[:PORT][/PATH]`, or `wss://` for TLS. `http://` and `https://` mean the same addresses, and so
    /// does `HOST:PORT` alone, without TLS. The default port is 443 with TLS, else 7070.
    pub fn parse(url: &str) -> Result<Endpoint, ClientError> {
        let bad = |reason: &str| ClientError::BadUrl { url: url.into(), reason: reason.into() };
        let is_bare = !url.contains("://");
        let full = if is_bare { format!("ws://{url}") } else { url.to_owned() };
        let uri: Uri = full.parse().map_err(|error| bad(&format!("{error}; {ACCEPTED}")))?;
        let tls = match uri.scheme_str() {
            // A bare word is more likely a mistake than a host.
            Some("ws" | "http") if !is_bare || uri.port_u16().is_some() => false,
            Some("wss" | "https") => true,
            _ => return Err(bad(ACCEPTED)),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("the host is missing"))?;
        if uri.query().is_some() {
            return Err(bad("leave the query out, the namespace is an option of its own"));
        }
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        let port = uri.port_u16().unwrap_or(if tls { TLS_PORT_DEFAULT } else { PORT_DEFAULT });
        Ok(Endpoint { host: host.to_ascii_lowercase(), port, path: path.into(), tls })
    }

    /// Returns whether the other address is on the same host and port.
    pub(crate) fn is_same_server(&self, other: &Endpoint) -> bool {
        (&self.host, self.port) == (&other.host, other.port)
    }

    /// Returns the URL of the WebSocket. By its alphabet a namespace needs no escaping.
    pub(crate) fn ws_url(&self, namespace: &Namespace) -> String {
        format!("{self}?namespace={namespace}")
    }

    /// Returns the base URL of the same server's HTTP interface, without a path.
    pub fn http_base(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }

    /// Returns `HOST:PORT`, for a TCP connection.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The URL of the WebSocket, without a namespace.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "wss" } else { "ws" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, shown) in [
            ("ws://127.0.0.1:7070/", "ws://127.0.0.1:7070/?namespace=default"),
            ("ws://127.0.0.1:9", "ws://127.0.0.1:9/?namespace=default"),
            ("http://localhost/ws", "ws://localhost:7070/ws?namespace=default"),
            ("wss://broker.example/", "wss://broker.example:443/?namespace=default"),
            ("https://broker.example:7070/", "wss://broker.example:7070/?namespace=default"),
            ("ws://[::1]:80/", "ws://[::1]:80/?namespace=default"),
            ("localhost:7070", "ws://localhost:7070/?namespace=default"),
            ("[::1]:80", "ws://[::1]:80/?namespace=default"),
            ("127.0.0.1:9/ws", "ws://127.0.0.1:9/ws?namespace=default"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().ws_url(&Namespace::default()), shown);
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for url in [
            "",
            "localhost",
            "localhost:",
            ":7070",
            "localhost:port",
            "ftp://x/",
            "ws:///",
            "ws://x/?a=b",
            "ws://x y/",
        ] {
            assert!(matches!(Endpoint::parse(url), Err(ClientError::BadUrl { .. })), "{url}");
        }
    }
}
