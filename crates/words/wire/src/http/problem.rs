//! Errors over HTTP: RFC 9457 problem details with the protocol's own code.

use millrace_model::{Offset, Partition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;
use crate::error::FrameError;
use crate::schema;

pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `urn:millrace:error:CODE`.
    pub r#type: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    #[schemars(schema_with = "schema::code")]
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub topic: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub group: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::partition")]
    pub partition: Option<Partition>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::offset")]
    pub offset: Option<Offset>,
    /// Of a replay that ended early: how many letters were published again before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub replayed: Option<u64>,
    /// How many letters had been replayed earlier: nothing was stored for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub duplicates: Option<u64>,
    /// The offset of the letter at which to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::offset")]
    pub next: Option<Offset>,
    /// With code `moved`: the URL of the server that leads, null when no server leads right now. Absent with every
    /// other code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::leader")]
    pub leader: Option<Option<Box<str>>>,
}

impl Problem {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Problem {
        FrameError::new(code, detail).into()
    }

    /// Sets another status than the code's usual one, such as 404 for a topic that does not exist.
    pub fn status(self, status: u16) -> Problem {
        Problem { status, ..self }
    }

    pub fn write(&self, out: &mut String) {
        super::write_doc(out, self);
    }
}

impl From<FrameError> for Problem {
    fn from(error: FrameError) -> Problem {
        Problem {
            r#type: format!("urn:millrace:error:{}", error.code),
            title: error.code.title().into(),
            status: error.code.http_status(),
            detail: error.message,
            code: error.code.as_str().into(),
            topic: error.about.topic,
            group: error.about.group,
            partition: error.about.partition,
            offset: error.about.offset,
            replayed: None,
            duplicates: None,
            next: None,
            leader: (error.code == ErrorCode::Moved).then_some(error.leader),
        }
    }
}
