//! Settings of a client of the CQRS loop, and the contents of a request.

use std::path::PathBuf;
use std::time::Duration;

use millrace_model::{JsonText, OsId, OsKind, OsNameError, OsType};
use millrace_wire::os::LINE_BYTES_MAX;

/// Longest line that is accepted from the server.
const RECEIVED_LINE_BYTES_MAX: usize = 16 << 20;

/// Settings of an [`OsClient`](crate::OsClient). Every value is usable: start with [`OsOptions::new`] and change what
/// matters.
#[derive(Clone, Debug)]
pub struct OsOptions {
    /// The socket's path.
    pub path: PathBuf,
    /// Most requests that wait for their outcome; at this number the next one waits for room. The server stops reading
    /// a connection at 1024.
    pub requests_inflight_max: usize,
    /// How long a request waits for its outcome unless it says otherwise. The server's own bound is 30 s.
    pub timeout: Duration,
    /// Longest line sent: a longer message is refused here. The server's own bound is the default.
    pub line_bytes_max: usize,
    /// Longest line received: a longer one ends the connection.
    pub received_line_bytes_max: usize,
}

impl OsOptions {
    pub fn new(path: impl Into<PathBuf>) -> OsOptions {
        OsOptions {
            path: path.into(),
            requests_inflight_max: 1024,
            timeout: Duration::from_secs(35),
            line_bytes_max: LINE_BYTES_MAX,
            received_line_bytes_max: RECEIVED_LINE_BYTES_MAX,
        }
    }
}

/// Returns the path of the socket of a server on this machine, unless it is configured otherwise:
/// `$XDG_RUNTIME_DIR/millrace/millrace.sock`, else the same in the directory for temporary files.
pub fn default_socket() -> PathBuf {
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    base.unwrap_or_else(std::env::temp_dir).join("millrace").join("millrace.sock")
}

/// A message of a client. Its id and timestamp are assigned when it is sent.
#[derive(Clone, Debug)]
pub struct OsRequest {
    pub kind: OsKind,
    pub ty: OsType,
    pub data: JsonText,
    pub correlation: Option<OsId>,
    pub causation: Option<OsId>,
    /// `None` = the timeout of the options.
    pub timeout: Option<Duration>,
}

impl OsRequest {
    pub fn new(kind: OsKind, ty: &str, data: JsonText) -> Result<OsRequest, OsNameError> {
        let ty = OsType::new(ty)?;
        Ok(OsRequest { kind, ty, data, correlation: None, causation: None, timeout: None })
    }

    /// Sets the correlation, which groups messages of one undertaking; the outcome carries it too.
    pub fn correlation(self, id: &str) -> Result<OsRequest, OsNameError> {
        Ok(OsRequest { correlation: Some(OsId::of_field("correlation", id)?), ..self })
    }

    /// Sets the causation: the id of the message that this one follows from.
    pub fn causation(self, id: &str) -> Result<OsRequest, OsNameError> {
        Ok(OsRequest { causation: Some(OsId::of_field("causation", id)?), ..self })
    }

    pub fn timeout(self, timeout: Duration) -> OsRequest {
        OsRequest { timeout: Some(timeout), ..self }
    }
}
