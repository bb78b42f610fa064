//! The error type of this crate, which is also the ERROR frame.

use std::fmt::Display;

use millrace_model::NameError;
use serde_json::value::RawValue;

use crate::about::About;
use crate::code::ErrorCode;
use crate::field::Field;
use crate::rid::Rid;
use crate::text::{push_json_member, push_string_member};

/// Longest piece of a refused value that is shown back.
const FOUND_BYTES_MAX: usize = 40;

/// A refusal: created here for text that cannot be parsed, by the server for everything else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FrameError {
    pub code: ErrorCode,
    pub message: String,
    pub rid: Option<Rid>,
    pub about: About,
    /// With code `moved`: the URL of the server that leads, if any does. Text as it was received, not checked.
    pub leader: Option<Box<str>>,
}

impl FrameError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> FrameError {
        FrameError { code, message: message.into(), rid: None, about: About::default(), leader: None }
    }

    pub fn about(self, about: About) -> FrameError {
        FrameError { about, ..self }
    }

    pub fn rid(self, rid: Option<Rid>) -> FrameError {
        FrameError { rid, ..self }
    }

    /// For a server that receives something other than a text frame.
    pub fn binary() -> FrameError {
        FrameError::new(ErrorCode::BadFrame, "the frame is binary: send one JSON object per text frame")
    }

    /// For a server that does not lead: where the leading one is, `None` when no server leads right now.
    pub fn moved(leader: Option<&str>) -> FrameError {
        let message = match leader {
            Some(leader) => format!("this server does not lead its store: connect to {leader}"),
            None => "no server leads this store right now: connect again in a second".to_owned(),
        };
        FrameError { leader: leader.map(Into::into), ..FrameError::new(ErrorCode::Moved, message) }
    }

    pub fn too_large(what: &str, bytes_max: usize) -> FrameError {
        FrameError::new(
            ErrorCode::TooLarge,
            format!("the {what} is too large: at most {bytes_max} bytes are allowed"),
        )
    }

    pub fn write(&self, out: &mut String) {
        out.push_str("{\"type\":\"ERROR\"");
        push_json_member(out, "code", "\"");
        out.push_str(self.code.as_str());
        out.push('"');
        push_string_member(out, "message", &self.message);
        crate::text::push_rid(out, self.rid.as_ref());
        self.about.push(out);
        match &self.leader {
            Some(leader) => push_string_member(out, "leader", leader),
            None if self.code == ErrorCode::Moved => push_json_member(out, "leader", "null"),
            None => {}
        }
        out.push('}');
    }

    pub(crate) fn bad_json(reason: impl Display) -> FrameError {
        FrameError::new(ErrorCode::BadJson, format!("not valid JSON: {reason}"))
    }

    pub(crate) fn bad_frame(message: impl Into<String>) -> FrameError {
        FrameError::new(ErrorCode::BadFrame, message)
    }

    pub(crate) fn missing(field: Field) -> FrameError {
        FrameError::bad_frame(format!("{} is missing: it must be {}", field.name(), field.expected()))
    }

    pub(crate) fn unknown_type(found: &str, known: &[&str]) -> FrameError {
        let known = match known {
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
            [] => String::new(),
        };
        FrameError::new(ErrorCode::UnknownType, format!("type is {:?}: it must be {known}", shown(found)))
    }

    pub(crate) fn wrong(field: Field, found: &RawValue) -> FrameError {
        FrameError::unlike(field, found, field.expected())
    }

    pub(crate) fn unlike(field: Field, found: &RawValue, expected: impl Display) -> FrameError {
        FrameError::bad_frame(format!(
            "{} is {}: it must be {expected}",
            field.name(),
            found_in(field, found)
        ))
    }

    /// Puts the place of a nested object before the message: `events[3].` before `key is 5`.
    pub(crate) fn inside(mut self, place: impl Display) -> FrameError {
        self.message.insert_str(0, &format!("{place}."));
        self
    }

    pub(crate) fn name(error: &NameError) -> FrameError {
        let code = match error {
            NameError::Empty(kind) | NameError::EmptySegment(kind) => kind,
            NameError::TooLong { kind, .. } | NameError::BadCharacter { kind, .. } => kind,
        };
        let code = match code {
            millrace_model::NameKind::Topic => ErrorCode::BadTopic,
            millrace_model::NameKind::Group => ErrorCode::BadGroup,
            // Ids of handlers and sessions do not occur in frames; an error about one counts as a bad frame.
            millrace_model::NameKind::Namespace
            | millrace_model::NameKind::Handler
            | millrace_model::NameKind::Session => ErrorCode::BadFrame,
        };
        FrameError::new(code, error.to_string())
    }
}

/// Describes a refused value: a secret only by its type, a container only by its kind.
fn found_in(field: Field, raw: &RawValue) -> String {
    let json = raw.get();
    let kind = match json.as_bytes().first() {
        Some(b'{') => return "an object".into(),
        Some(b'[') => return "an array".into(),
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    };
    if field == Field::Token {
        return kind.into();
    }
    shown(json)
}

pub(crate) fn shown(json: &str) -> String {
    if json.len() <= FOUND_BYTES_MAX {
        return json.into();
    }
    format!("{}... ({} bytes)", &json[..json.floor_char_boundary(FOUND_BYTES_MAX)], json.len())
}
