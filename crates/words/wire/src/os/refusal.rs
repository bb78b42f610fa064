//! Refusals of lines that are not valid messages, and the error messages sent back for them.

use std::fmt::Display;

use millrace_model::{OsFault, OsId, OsKind, OsMessage, OsMetadata, OsType, Timestamp};

const BAD_JSON: u16 = 400;
const TOO_LONG: u16 = 413;
const BAD_SCHEMA: u16 = 422;
/// The type of the error message for a line whose own type cannot be read.
const NO_TYPE: &str = "Validation.Failed";

/// The refusal of a line. Nothing is done for the line; the next one is read as if it had not been there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OsRefusal {
    /// 400: not JSON; 413: too long; 422: JSON, but not a message.
    pub code: u16,
    pub message: String,
    /// The type of the refused message, if it can be read and is legal.
    pub ty: Option<OsType>,
    /// The id of the refused message, if it can be read.
    pub causation: Option<OsId>,
    pub correlation: Option<OsId>,
}

impl OsRefusal {
    pub fn new(code: u16, message: impl Into<String>) -> OsRefusal {
        OsRefusal { code, message: message.into(), ty: None, causation: None, correlation: None }
    }

    pub fn invalid_json(reason: impl Display) -> OsRefusal {
        OsRefusal::new(BAD_JSON, format!("Invalid JSON: {reason}"))
    }

    pub fn schema(details: impl Display) -> OsRefusal {
        OsRefusal::new(BAD_SCHEMA, format!("Schema validation failed: {details}"))
    }

    pub fn too_long(line_bytes_max: usize) -> OsRefusal {
        let limit = match line_bytes_max {
            kilobytes if kilobytes % 1024 == 0 => format!("{}KB", kilobytes / 1024),
            bytes => format!("{bytes} bytes"),
        };
        OsRefusal::new(TOO_LONG, format!("Message exceeds maximum line length of {limit}"))
    }

    /// Makes the refusal about a message that was parsed, such as one whose `data` a capability does not accept.
    pub fn about(self, message: &OsMessage) -> OsRefusal {
        OsRefusal {
            ty: Some(message.ty.clone()),
            causation: Some(message.metadata.id.clone()),
            correlation: message.metadata.correlation.clone(),
            ..self
        }
    }

    pub fn into_message(self, id: OsId, timestamp: Timestamp) -> OsMessage {
        let ty = self.ty.unwrap_or_else(|| OsType::known(NO_TYPE));
        OsMessage {
            kind: OsKind::Error,
            ty,
            data: OsFault::new(self.code, self.message).data(),
            metadata: OsMetadata {
                id,
                timestamp,
                correlation: self.correlation,
                causation: self.causation,
                other: None,
            },
        }
    }
}
