//! Errors of a request to the CQRS loop, distinguished by what the caller can do about them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrace_model::{JsonError, OsFault, OsNameError};

/// Cheap to clone: when a connection ends, every waiting caller gets the error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OsClientError {
    /// Start the server, or correct the path.
    #[error("cannot reach {}: {reason}", path.display())]
    Unreachable { path: PathBuf, reason: String },
    /// Set `XDG_RUNTIME_DIR` to a folder of your own on both sides, or name the socket's path.
    #[error(
        "the folder {folder:?} of the default socket is not yours alone: somebody else could listen there; name the path \
         of your server's socket"
    )]
    Foreign { folder: PathBuf },
    /// The outcome is an error: the loop or the capability says why, with a code in the manner of HTTP.
    #[error("{} ({})", .0.message, .0.code)]
    Refused(OsFault),
    /// No outcome came in time. The request may still be carried out; a late outcome is dropped.
    #[error("no outcome within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The connection was lost before the outcome came: the request may or may not have been carried out.
    #[error("the connection was lost before the outcome came ({0})")]
    Disconnected(String),
    /// [`OsClient::close`](crate::OsClient::close) was called.
    #[error("the client is closed")]
    Closed,
    /// Correct the type or id.
    #[error(transparent)]
    BadName(#[from] OsNameError),
    /// A command or query is a request, an event is emitted; replies and errors are not for clients to send.
    #[error("a message of kind {0} cannot be sent this way")]
    BadKind(millrace_model::OsKind),
    /// The data has no JSON form.
    #[error("{0}")]
    BadData(Arc<JsonError>),
    /// Send less, or raise the bound on both sides.
    #[error("the message has {bytes} bytes: {max} are allowed in a line")]
    TooLarge { bytes: usize, max: usize },
}

impl From<JsonError> for OsClientError {
    fn from(error: JsonError) -> OsClientError {
        OsClientError::BadData(Arc::new(error))
    }
}
