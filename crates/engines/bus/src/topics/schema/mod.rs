//! A topic's JSON Schema, compiled: what the payloads of its events must match.
//!
//! The dialect is draft 2020-12. References lead nowhere but into the document itself, patterns run on an engine whose
//! time is linear in the text, and the work of one check has a bound, because a check may run on the engine's thread.

mod retained;
mod weight;

use std::fmt::{self, Write};
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use millrace_model::{EventBody, NewEvent};
use serde_json::Value;

pub use retained::{
    BreakingEvent, CheckedRange, Compared, DelayedCheck, RetainedCheck, RetainedOutcome, UncomparedEvents,
};
use weight::weight_of;

/// Bytes a compiled pattern may take; a larger one is refused with its schema. Time is linear in the text, and in this:
/// a pattern of 1 MiB took a minute for a text of 1 MiB.
const PATTERN_BYTES_MAX: usize = 64 << 10;
/// Bytes of a mismatch's reason, which may quote the payload.
const REASON_BYTES_MAX: usize = 300;
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Identifies a schema: the topic's incarnation and the version. A stamp is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaStamp {
    /// The topic's incarnation: see [`millrace_model::TopicRow::incarnation`].
    pub incarnation: u64,
    pub version: u32,
    /// Whether an event with a key and the payload `null` is a tombstone, which no schema concerns.
    pub tombstones: bool,
}

/// Why a document cannot be the schema of a topic (`why`), and where in it the reason is (`at`, a JSON Pointer).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("schema is refused at {}: {why}", shown_pointer(.at))]
pub struct SchemaError {
    pub at: String,
    pub why: String,
}

/// An event that does not match the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The event's place in its request.
    pub index: usize,
    pub why: String,
}

/// The result of checking a request's events against one schema. Valid while that schema is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaVerdict {
    pub stamp: SchemaStamp,
    pub result: Result<(), Vec<Mismatch>>,
}

/// How much of a value a reason shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// For the author of the payload.
    Value,
    /// For somebody who perhaps may not read the event.
    Nothing,
}

/// A schema in its compiled form.
pub struct TopicSchema {
    pub stamp: SchemaStamp,
    /// Bytes of its document.
    pub(crate) bytes: usize,
    compiled: Result<Arc<Validator>, SchemaError>,
    /// Values of the document, references followed: about how much one value of a payload costs at most.
    weight: u64,
    /// Most bytes of payload times weight: of one event, and of all events of a request.
    work_max: u64,
    request_work_max: u64,
}

/// Bounds on the work of checks: see [`crate::BusLimits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkMax {
    pub(crate) event: u64,
    pub(crate) request: u64,
}

impl TopicSchema {
    pub(crate) fn new(
        document: &Value,
        bytes: usize,
        stamp: SchemaStamp,
        max: WorkMax,
    ) -> Result<TopicSchema, SchemaError> {
        let (weight, compiled) = compile(document)?;
        let (work_max, request_work_max) = (max.event, max.request);
        Ok(TopicSchema { stamp, bytes, compiled: Ok(Arc::new(compiled)), weight, work_max, request_work_max })
    }

    /// Compiles a schema from a row of the store. If this version of the server refuses a document that another version
    /// accepted, no event matches the schema until the topic's owner sets a new one, and every mismatch says so.
    pub(crate) fn stored(document: &Value, stamp: SchemaStamp, max: WorkMax) -> TopicSchema {
        let bytes = document.to_string().len();
        let (work_max, request_work_max) = (max.event, max.request);
        let unusable =
            |error| TopicSchema { stamp, bytes, compiled: Err(error), weight: 0, work_max, request_work_max };
        TopicSchema::new(document, bytes, stamp, max).unwrap_or_else(unusable)
    }

    pub(crate) fn with(&self, stamp: SchemaStamp) -> TopicSchema {
        let TopicSchema { bytes, weight, work_max, request_work_max, .. } = *self;
        TopicSchema { stamp, bytes, compiled: self.compiled.clone(), weight, work_max, request_work_max }
    }

    /// Returns the events that do not match, in their order. A mismatch without an id of its own is returned alone: it
    /// refuses the request whatever the others are, while each mismatch with an id may be the duplicate of an event
    /// that was stored before.
    pub fn check_all(&self, events: &[NewEvent]) -> Result<(), Vec<Mismatch>> {
        let mut mismatches = Vec::new();
        for (index, event) in events.iter().enumerate() {
            let Err(why) = self.check(&event.body, Quote::Value) else { continue };
            let mismatch = Mismatch { index, why: why.to_string() };
            if event.id.is_none() {
                return Err(vec![mismatch]);
            }
            mismatches.push(mismatch);
        }
        if mismatches.is_empty() { Ok(()) } else { Err(mismatches) }
    }

    /// Returns how much a check of these events costs at most: bytes of payloads times values of the schema.
    pub fn work(&self, events: &[NewEvent]) -> u64 {
        let bytes: usize = events.iter().map(|event| event.body.payload.as_str().len()).sum();
        (bytes as u64).saturating_mul(self.weight.max(1))
    }

    /// Returns how many bytes of payloads one request may have.
    pub fn request_bytes_max(&self) -> u64 {
        self.request_work_max / self.weight.max(1)
    }

    /// Whether the events of one request are too much to be checked together.
    pub fn is_too_much(&self, events: &[NewEvent]) -> bool {
        events.len() > 1 && self.work(events) > self.request_work_max
    }

    /// Compares an event's payload with the schema.
    pub fn check(&self, body: &EventBody, quote: Quote) -> Result<(), PayloadMismatch> {
        let text = body.payload.as_str();
        if self.stamp.tombstones && body.key.is_some() && text == "null" {
            return Ok(());
        }
        let validator = match &self.compiled {
            Ok(validator) => validator,
            Err(error) => return Err(PayloadMismatch::UnusableSchema(error.to_string())),
        };
        let bytes_max = self.work_max / self.weight.max(1);
        if text.len() as u64 > bytes_max {
            return Err(PayloadMismatch::TooLong { bytes: text.len(), bytes_max });
        }
        let value: Value =
            serde_json::from_str(text).map_err(|error| PayloadMismatch::Unreadable(error.to_string()))?;
        validator.validate(&value).map_err(|error| PayloadMismatch::Differs(reason(&error, quote)))
    }
}

/// Why a payload does not match a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadMismatch {
    #[error("no event can match it until it is set anew: {0}")]
    UnusableSchema(String),
    #[error("it has {bytes} bytes: against this schema at most {bytes_max} can be checked")]
    TooLong { bytes: usize, bytes_max: u64 },
    #[error("it cannot be checked, because no reader could hold its numbers and texts: {0}")]
    Unreadable(String),
    /// Says where, what was found and what the schema wants: `at /total: "x" is not of type "number"`.
    #[error("{0}")]
    Differs(String),
}

impl fmt::Debug for TopicSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicSchema").field("stamp", &self.stamp).field("weight", &self.weight).finish()
    }
}

/// Whether a stored document can be used.
pub(crate) fn check_schema(document: &Value) -> Result<(), SchemaError> {
    compile(document).map(|_| ())
}

/// Compiles a document: draft 2020-12, offline, with patterns of linear time. Returns its weight, too (see
/// `weight.rs`).
fn compile(document: &Value) -> Result<(u64, Validator), SchemaError> {
    let refused = |at: &str, why: String| SchemaError { at: at.to_owned(), why };
    if !matches!(document, Value::Object(_) | Value::Bool(_)) {
        return Err(refused("", "it must be an object, true or false".to_owned()));
    }
    match document.get("$schema") {
        None => {}
        Some(Value::String(named)) if named.trim_end_matches('#') == DIALECT => {}
        Some(_) => return Err(refused("/$schema", format!("it must be {DIALECT:?}, or be left out"))),
    }
    // Checked before the references are followed, so that a wrong shape is reported as what it is.
    jsonschema::draft202012::meta::validate(document).map_err(|error| in_document(&error))?;
    let weight = weight_of(document)?;
    let validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
        .offline()
        .build(document)
        .map_err(|error| in_document(&error))?;
    Ok((weight, validator))
}

/// Converts an error in the schema document itself: here the document is the instance that was validated, by its
/// metaschema or by the compiler.
fn in_document(error: &ValidationError<'_>) -> SchemaError {
    SchemaError { at: error.instance_path().to_string(), why: bounded(format_args!("{error}")) }
}

fn reason(error: &ValidationError<'_>, quote: Quote) -> String {
    let at = error.instance_path().to_string();
    let at = shown_pointer(&at);
    match quote {
        Quote::Value => bounded(format_args!("at {at}: {error}")),
        Quote::Nothing => bounded(format_args!("at {at}: {}", error.masked())),
    }
}

/// The pointer to a whole document is empty, which would read as a gap.
fn shown_pointer(at: &str) -> &str {
    if at.is_empty() { "the top" } else { at }
}

/// Stops writing at the bound: a message quotes values, and a value may be a whole payload.
fn bounded(text: fmt::Arguments<'_>) -> String {
    struct Bounded(String);
    impl Write for Bounded {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = REASON_BYTES_MAX - self.0.len();
            if text.len() <= room {
                self.0.push_str(text);
                return Ok(());
            }
            self.0.push_str(&text[..text.floor_char_boundary(room)]);
            Err(fmt::Error)
        }
    }
    let mut bounded = Bounded(String::new());
    if bounded.write_fmt(text).is_err() {
        bounded.0.push_str("...");
    }
    bounded.0
}

#[cfg(test)]
mod tests;
