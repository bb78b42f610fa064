//! Errors of the client, distinguished by what the caller can do about them.

use std::sync::Arc;

use millrace_model::{IdError, JsonError, NameError};
use millrace_wire::FrameError;

/// Cheap to clone: when a connection ends, every waiting caller gets the error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// Correct the URL.
    #[error("{url:?} is no usable URL: {reason}")]
    BadUrl { url: String, reason: String },
    /// Correct the file of trusted authorities, or what is in it.
    #[error("{path} cannot say whom to trust: {reason}")]
    BadAuthority { path: String, reason: String },
    /// Correct the file of the client certificate or of its key, or what is in it.
    #[error("{path} cannot show who this client is: {reason}")]
    BadCertificate { path: String, reason: String },
    /// Correct the name.
    #[error(transparent)]
    BadName(#[from] NameError),
    /// Correct the id.
    #[error(transparent)]
    BadId(#[from] IdError),
    /// The payload has no JSON form.
    #[error("{0}")]
    BadPayload(Arc<JsonError>),
    /// Start the server, or correct the address.
    #[error("cannot reach {url}: {reason}")]
    Unreachable { url: String, reason: String },
    /// The server answered but does not let this client in: correct token, origin or path.
    #[error("{url} refused the connection with status {status}: {detail}")]
    Rejected { url: String, status: u16, detail: String },
    /// The server refused the request and says why.
    #[error("{} ({})", .0.message, .0.code)]
    Refused(FrameError),
    /// Make the event smaller, or raise the limit on both sides.
    #[error("the frame of the publish has {bytes} bytes: {max} are allowed")]
    TooLarge { bytes: usize, max: String },
    /// The connection was lost before the answer came: the request may or may not have been carried out.
    #[error("the connection was lost before the answer came ({0})")]
    Disconnected(String),
    /// The delivery came on a connection that is gone: the event will be delivered again.
    #[error("the connection of this delivery is gone: the event will be delivered again")]
    Stale,
    /// A client is one member of a group: use a second client for a second member.
    #[error("this client is already subscribed to topic {topic} in group {group}")]
    AlreadySubscribed { topic: String, group: String },
    /// The answer does not fit the request: client and server do not speak the same protocol.
    #[error("the server's answer makes no sense: {0}")]
    Protocol(String),
    #[error("the client is closed")]
    Closed,
}

impl ClientError {
    /// Whether the server could not be reached or was lost, in contrast to having refused something.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, ClientError::Unreachable { .. } | ClientError::Disconnected(_))
    }
}

impl From<JsonError> for ClientError {
    fn from(error: JsonError) -> ClientError {
        ClientError::BadPayload(Arc::new(error))
    }
}
