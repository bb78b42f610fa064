//! OsMessage: the message type of the CQRS loop. A command, query, event, reply or error, with its lineage.
//!
//! `data` stays the JSON text that its author wrote, and so do unknown members of `metadata`: both pass through the
//! loop byte for byte.

use std::fmt;
use std::sync::Arc;

use crate::clocks::time::Timestamp;
use crate::log::id::EventId;
use crate::log::json::JsonText;

/// Longest name of a message type.
pub const OS_TYPE_BYTES_MAX: usize = 256;
/// Longest id, causation or correlation.
pub const OS_ID_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OsKind {
    Command,
    Query,
    Event,
    Reply,
    Error,
}

impl OsKind {
    pub const ALL: [OsKind; 5] =
        [OsKind::Command, OsKind::Query, OsKind::Event, OsKind::Reply, OsKind::Error];

    pub fn parse(text: &str) -> Option<OsKind> {
        OsKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            OsKind::Command => "command",
            OsKind::Query => "query",
            OsKind::Event => "event",
            OsKind::Reply => "reply",
            OsKind::Error => "error",
        }
    }

    /// Whether this is a command or query, whose sender waits for exactly one outcome.
    pub fn is_request(self) -> bool {
        matches!(self, OsKind::Command | OsKind::Query)
    }

    /// Whether this is a reply or error, which answers a request.
    pub fn is_outcome(self) -> bool {
        matches!(self, OsKind::Reply | OsKind::Error)
    }
}

impl fmt::Display for OsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OsNameError {
    #[error(
        "type is {0:?}: give a domain and an action such as Memory.Get, both beginning with A-Z and made of A-Z a-z 0-9, \
         at most {OS_TYPE_BYTES_MAX} characters together"
    )]
    Type(String),
    #[error("{field} has {bytes} bytes: 1 to {OS_ID_BYTES_MAX} are allowed")]
    Length { field: &'static str, bytes: usize },
}

/// `Domain.Action`: exactly one dot, both parts in ASCII and beginning with a capital.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsType(Arc<str>);

impl OsType {
    pub fn new(text: &str) -> Result<OsType, OsNameError> {
        let part = |part: &str| {
            part.as_bytes().first().is_some_and(u8::is_ascii_uppercase)
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        let fine = text.len() <= OS_TYPE_BYTES_MAX
            && text.split_once('.').is_some_and(|(domain, action)| part(domain) && part(action));
        // The text is cut, because it may be of any length and is shown in an answer.
        if fine { Ok(OsType(text.into())) } else { Err(OsNameError::Type(text.chars().take(80).collect())) }
    }

    /// Returns a type that is a constant of the code, such as `Validation.Failed`. Checked only in debug builds.
    pub fn known(text: &'static str) -> OsType {
        debug_assert!(OsType::new(text).is_ok(), "{text}");
        OsType(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the type belongs to the loop's own domain, `Sys.*`. (`Syscall.*` does not.)
    pub fn is_sys(&self) -> bool {
        self.0.starts_with("Sys.")
    }
}

/// The id of a message, as its author chose it; also what `causation` holds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsId(Arc<str>);

impl OsId {
    pub fn new(text: &str) -> Result<OsId, OsNameError> {
        OsId::of_field("id", text)
    }

    /// Like `new`, for another member, which the error then names.
    pub fn of_field(field: &'static str, text: &str) -> Result<OsId, OsNameError> {
        match text.len() {
            1..=OS_ID_BYTES_MAX => Ok(OsId(text.into())),
            bytes => Err(OsNameError::Length { field, bytes }),
        }
    }

    /// Returns an event's id as the id of a message. Always valid: an event's id is not empty and shorter than
    /// [`OS_ID_BYTES_MAX`].
    pub fn of_event(id: &EventId) -> OsId {
        OsId(id.to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! shown_as_text {
    ($($type:ident),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
shown_as_text!(OsType, OsId);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsMetadata {
    pub id: OsId,
    pub timestamp: Timestamp,
    /// Groups messages of one undertaking; never used to match an answer with its request.
    pub correlation: Option<OsId>,
    /// The id of the message this one follows from.
    pub causation: Option<OsId>,
    /// Unknown members, as they were written: `"a":1,"b":[2]`, without braces.
    pub other: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsMessage {
    pub kind: OsKind,
    pub ty: OsType,
    pub data: JsonText,
    pub metadata: OsMetadata,
}

impl OsMessage {
    /// Returns an upper estimate of the message's size, for bounds.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 160;
        let metadata = &self.metadata;
        let text = |id: &Option<OsId>| id.as_ref().map_or(0, |id| id.as_str().len());
        FIXED
            + self.ty.as_str().len()
            + self.data.bytes().len()
            + metadata.id.as_str().len()
            + text(&metadata.correlation)
            + text(&metadata.causation)
            + metadata.other.as_ref().map_or(0, |other| other.len())
    }
}

/// The `data` of an error: a code in the manner of HTTP and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsFault {
    pub code: u16,
    pub message: String,
}

impl OsFault {
    pub fn new(code: u16, message: impl Into<String>) -> OsFault {
        OsFault { code, message: message.into() }
    }

    pub fn data(&self) -> JsonText {
        let data = serde_json::json!({ "code": self.code, "message": self.message });
        JsonText::from_stored(data.to_string().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_exactly_two_parts_that_begin_with_a_capital() {
        for text in ["Memory.Get", "A.B", "Sys.RequestTimeout", "X9.Y0z"] {
            assert!(OsType::new(text).is_ok(), "{text}");
        }
        let long = format!("A.B{}", "x".repeat(254));
        for text in
            ["", ".", "A.", ".B", "a.B", "A.b", "A.B.C", "A B.C", "Ä.B", "A.B ", "Echo", "A.B\n", &long]
        {
            assert!(OsType::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn syscalls_are_not_of_the_loops_own_domain() {
        assert!(OsType::new("Sys.ActorFault").unwrap().is_sys());
        assert!(!OsType::new("Syscall.Ping").unwrap().is_sys());
    }

    #[test]
    fn ids_are_any_short_text() {
        assert!(OsId::new("a").is_ok() && OsId::new("ü \n").is_ok());
        assert_eq!(OsId::new("").unwrap_err().to_string(), "id has 0 bytes: 1 to 256 are allowed");
        assert!(OsId::new(&"x".repeat(257)).is_err());
    }

    #[test]
    fn a_fault_is_json() {
        assert_eq!(OsFault::new(404, "no \"X\"").data().as_str(), r#"{"code":404,"message":"no \"X\""}"#);
    }
}
