//! The answer `moved`: another server leads, and this one did nothing. In the form of each edge: a problem of HTTP, an
//! ERROR frame and a close of a WebSocket, an error message of the CQRS loop.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, header};
use millrace_model::{JsonText, OsId, OsKind, OsMessage, OsMetadata, OsType, Timestamp};
use millrace_wire::{ErrorCode, FrameError, LEADER_HEADER, moved_close_reason};
use serde_json::json;

use crate::refusal::Refusal;

const LEADER: HeaderName = HeaderName::from_static(LEADER_HEADER);
/// Seconds after which to try again: a server that follows may lead by then.
const RETRY_AFTER_SECONDS: u64 = 1;
/// The type of the error message of the CQRS loop, and its code.
const OS_TYPE: &str = "Sys.Moved";
const OS_CODE: u16 = 503;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    leader: Option<Arc<str>>,
}

impl Moved {
    /// `leader` is the http or https URL that the leading server advertises; `None` while no server leads.
    pub(crate) fn to(leader: Option<String>) -> Moved {
        Moved { leader: leader.map(Into::into) }
    }

    /// The answer over HTTP.
    pub(crate) fn refusal(&self) -> Refusal {
        self.http(FrameError::moved(self.leader.as_deref()))
    }

    /// The same for a request that a follower answers as well, but not now: `why` says why not.
    pub(crate) fn refusal_because(&self, why: &str) -> Refusal {
        let FrameError { message, leader, .. } = FrameError::moved(self.leader.as_deref());
        let message = format!("{why}; {message}");
        self.http(FrameError { leader, ..FrameError::new(ErrorCode::Moved, message) })
    }

    fn http(&self, error: FrameError) -> Refusal {
        let refusal =
            Refusal::from(error).header(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        // The URL comes from the store: one that no header can carry is in the document only.
        match self.leader.as_deref().map(HeaderValue::from_str) {
            Some(Ok(leader)) => refusal.header(LEADER, leader),
            _ => refusal,
        }
    }

    /// The ERROR frame of a WebSocket.
    pub(crate) fn frame(&self) -> FrameError {
        FrameError::moved(self.ws_url().as_deref())
    }

    /// The reason of the closing frame: the leader's URL, if there is one and it fits.
    pub(crate) fn close_reason(&self) -> String {
        moved_close_reason(self.ws_url().as_deref()).to_owned()
    }

    /// The error message of the CQRS loop.
    pub(crate) fn os_message(&self, (id, timestamp): (OsId, Timestamp)) -> OsMessage {
        let FrameError { code, message, leader, .. } = self.frame();
        let data =
            json!({"code": OS_CODE, "message": message, "error": code.as_str(), "leader": leader.as_deref()});
        OsMessage {
            kind: OsKind::Error,
            ty: OsType::known(OS_TYPE),
            data: JsonText::from_stored(data.to_string().into()),
            metadata: OsMetadata { id, timestamp, correlation: None, causation: None, other: None },
        }
    }

    /// The leader's address as a WebSocket URL.
    fn ws_url(&self) -> Option<String> {
        let (scheme, rest) = self.leader.as_deref()?.split_once("://")?;
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
            assert_eq!(moved.frame().leader.as_deref(), Some(url));
            assert_eq!(moved.close_reason(), url);
        }
        let nobody = Moved::to(None);
        assert_eq!((nobody.frame().leader, nobody.close_reason().as_str()), (None, ""));
    }
}
