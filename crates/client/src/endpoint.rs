//! Where the server is: one URL for the WebSocket, from which the HTTP address follows.

use millrace_model::Namespace;
use tokio_tungstenite::tungstenite::http::Uri;

use crate::error::ClientError;

const PORT_DEFAULT: u16 = 7070;
const ACCEPTED: &str = "give ws://HOST:PORT/, http://HOST:PORT/ or HOST:PORT";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    pub path: String,
}

impl Endpoint {
    /// `ws://HOST[:PORT][/PATH]`; `http://` is taken as the same place, and so is `HOST:PORT` alone.
    pub fn parse(url: &str) -> Result<Endpoint, ClientError> {
        let bad = |reason: &str| ClientError::BadUrl { url: url.into(), reason: reason.into() };
        let is_bare = !url.contains("://");
        let full = if is_bare { format!("ws://{url}") } else { url.to_owned() };
        let uri: Uri = full.parse().map_err(|error| bad(&format!("{error}; {ACCEPTED}")))?;
        match uri.scheme_str() {
            // A bare word is more likely a mistake than a host.
            Some("ws" | "http") if !is_bare || uri.port_u16().is_some() => {}
            Some("wss" | "https") => {
                return Err(bad(&format!("this version does not speak TLS; {ACCEPTED}")));
            }
            _ => return Err(bad(ACCEPTED)),
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("the host is missing"))?;
        if uri.query().is_some() {
            return Err(bad("leave the query out, the namespace is an option of its own"));
        }
        let path = if uri.path().is_empty() { "/" } else { uri.path() };
        Ok(Endpoint { host: host.into(), port: uri.port_u16().unwrap_or(PORT_DEFAULT), path: path.into() })
    }

    /// Names need no escaping by their alphabet.
    pub(crate) fn ws_url(&self, namespace: &Namespace) -> String {
        format!("ws://{}:{}{}?namespace={namespace}", self.host, self.port, self.path)
    }

    /// `HOST:PORT`, as a TCP connection wants it.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
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
            "wss://x/",
            "ws:///",
            "ws://x/?a=b",
            "ws://x y/",
        ] {
            assert!(matches!(Endpoint::parse(url), Err(ClientError::BadUrl { .. })), "{url}");
        }
    }
}
