//! The answer `moved`: another server leads, and this one did nothing. In the form of each edge: a problem of HTTP, an
//! ERROR frame and a close of a WebSocket, an error message of the CQRS loop.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, header};
use millrace_model::{JsonText, OsId, OsKind, OsMessage, OsMetadata, OsType, Timestamp};
use millrace_wire::http::Problem;
use millrace_wire::{ErrorCode, FrameError};
use serde_json::json;

use crate::refusal::Refusal;

/// The http or https URL of the server that leads.
pub(crate) const LEADER: HeaderName = HeaderName::from_static("x-millrace-leader");
/// Seconds after which to try again: a server that follows may lead by then.
const RETRY_AFTER_SECONDS: u64 = 1;
/// The longest reason that a closing frame has room for (RFC 6455, 5.5).
const REASON_BYTES_MAX: usize = 123;
/// The reason of a closing frame that cannot name the leader.
const MOVED: &str = "another server leads";
const NOBODY: &str = "no server leads at the moment: try again";
/// The type of the error message of the CQRS loop, and its code.
const OS_TYPE: &str = "Sys.Moved";
const OS_CODE: u16 = 503;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    leader: Option<Arc<str>>,
    why: Arc<str>,
}

impl Moved {
    /// `leader` is the URL that the leading server advertises; `None` while no server leads.
    pub(crate) fn to(leader: Option<String>) -> Moved {
        Moved { leader: leader.map(Into::into), why: "this server does not lead the store".into() }
    }

    /// Says why this server cannot answer, instead of just that it does not lead.
    pub(crate) fn because(self, why: String) -> Moved {
        Moved { why: why.into(), ..self }
    }

    fn message(&self) -> String {
        let why = &self.why;
        match &self.leader {
            Some(leader) => format!("{why} and did nothing: send this to {leader}"),
            None => format!("{why} and did nothing, and no server leads at the moment: try again"),
        }
    }

    /// The answer over HTTP.
    pub(crate) fn refusal(&self) -> Refusal {
        let leader = self.leader.as_deref();
        let problem = Problem { leader: leader.map(Into::into), ..Problem::new(ErrorCode::Moved, self.message()) };
        let refusal =
            Refusal::from(problem).header(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        // The URL comes from the store: one that no header can carry is in the document only.
        match leader.map(HeaderValue::from_str) {
            Some(Ok(leader)) => refusal.header(LEADER, leader),
            _ => refusal,
        }
    }

    /// The ERROR frame of a WebSocket.
    pub(crate) fn frame(&self) -> FrameError {
        let leader = self.ws_url().map(String::into_boxed_str);
        FrameError { leader, ..FrameError::new(ErrorCode::Moved, self.message()) }
    }

    /// The reason of the closing frame: the leader's URL, if there is room for it.
    pub(crate) fn close_reason(&self) -> String {
        match self.ws_url() {
            Some(url) if url.len() <= REASON_BYTES_MAX => url,
            Some(_) => MOVED.to_owned(),
            None => NOBODY.to_owned(),
        }
    }

    /// The error message of the CQRS loop. `names_leader` is false for a connection whose peer has shown no token where
    /// one is needed.
    pub(crate) fn os_message(&self, (id, timestamp): (OsId, Timestamp), names_leader: bool) -> OsMessage {
        let known = if names_leader { self.clone() } else { Moved { leader: None, ..self.clone() } };
        let data = json!({
            "code": OS_CODE,
            "error": ErrorCode::Moved.as_str(),
            "message": known.message(),
            "leader": known.ws_url(),
        });
        OsMessage {
            kind: OsKind::Error,
            ty: OsType::known(OS_TYPE),
            data: JsonText::from_stored(data.to_string().into()),
            metadata: OsMetadata { id, timestamp, correlation: None, causation: None, other: None },
        }
    }

    /// The leader's address as a WebSocket URL.
    fn ws_url(&self) -> Option<String> {
        let leader = self.leader.as_deref()?;
        let (scheme, rest) = leader.split_once("://")?;
        let scheme = match scheme {
            "http" => "ws",
            "https" => "wss",
            other => other,
        };
        let slash = if rest.contains('/') { "" } else { "/" };
        Some(format!("{scheme}://{rest}{slash}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_is_named_as_a_websocket_url() {
        for (leader, url) in [
            ("http://10.0.0.1:7070", "ws://10.0.0.1:7070/"),
            ("https://broker.example", "wss://broker.example/"),
            ("https://broker.example/", "wss://broker.example/"),
            ("http://[::1]:7070/bus", "ws://[::1]:7070/bus"),
        ] {
            let moved = Moved::to(Some(leader.to_owned()));
            assert_eq!(moved.ws_url().as_deref(), Some(url));
            assert_eq!(moved.close_reason(), url);
        }
        assert_eq!(Moved::to(None).close_reason(), NOBODY);
        let long = format!("http://{}.example", "x".repeat(120));
        assert_eq!(Moved::to(Some(long)).close_reason(), MOVED);
        assert!(MOVED.len() <= REASON_BYTES_MAX && NOBODY.len() <= REASON_BYTES_MAX);
    }
}
