//! The requests to capabilities and their answers, as the host's handlers and the files beside this one exchange them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use super::grant::Grant;
use crate::codec::{Generation, msgpack};
use crate::value::Value;

/// Bytes of a reply's frame beside its value: a generous estimate, for the longest frame of generation B.
const FRAME_BYTES: usize = 160;

/// An effect request for a capability.
#[derive(Clone, Copy, Debug)]
pub struct CapabilityCall<'a> {
    pub generation: Generation,
    /// The operation's name, such as `read_bytes`.
    pub op: &'a str,
    /// The operation as errors show it, such as `std::fs::Fs.read_bytes`.
    pub label: &'a str,
    pub args: &'a [Value],
    /// The size of the buffer that a reply must fit, its frame included.
    pub buffer_bytes: usize,
    /// Milliseconds of the scheduler's monotonic clock.
    pub monotonic_ms: u64,
    /// Milliseconds since 1970.
    pub system_ms: u64,
}

/// An answer that is not there yet.
pub type CapabilityFuture = Pin<Box<dyn Future<Output = Result<Value, CapabilityError>> + Send>>;

/// How a capability answers.
pub enum CapabilityAnswer {
    Now(Value),
    /// Answers after this long, by the scheduler's timers.
    AfterMs(u64, Value),
    /// Answers when something outside of the host is done.
    Later(CapabilityFuture),
    /// Answers when a call returns that blocks its thread until somebody outside acts, such as reading a line of input.
    /// The call runs on another thread.
    Blocking(Box<dyn FnOnce() -> Value + Send>),
    /// Answers when a call returns that blocks its thread for as long as a disk takes. The call runs on another thread,
    /// so that the scheduler goes on; under a virtual clock it runs at once, because there the order of answers must
    /// not depend on the speed of a disk.
    Brief(Box<dyn FnOnce() -> Value + Send>),
    /// As `Brief`, for writes to stdout, stderr or the log. A reader that has stopped reading delays only such calls.
    Stream(Box<dyn FnOnce() -> Value + Send>),
}

/// The size limit of a reply. Owned, so that work on another thread can take it along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyRoom {
    generation: Generation,
    pub(crate) buffer_bytes: usize,
}

impl ReplyRoom {
    /// Whether the value, as its generation encodes it, fits the run's buffer. A reply that does not fit would fail the
    /// run.
    pub(crate) fn fits(&self, value: &Value) -> bool {
        let frame = match self.generation {
            Generation::A => 0,
            Generation::B => FRAME_BYTES,
        };
        let mut encoded = Vec::new();
        msgpack::write(&mut encoded, value).is_ok() && encoded.len() + frame <= self.buffer_bytes
    }
}

/// A request that a capability cannot answer: the run fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    #[error("the capability {capability} does not know the operation {op} ({label}): it has {known}")]
    UnknownOperation { capability: &'static str, op: String, label: String, known: String },
    #[error("{label}: {expected}, but the module sent {found}")]
    BadArgument { label: String, expected: &'static str, found: String },
    #[error("{label}: {count} random bytes do not fit a reply of {max} bytes")]
    TooManyBytes { label: String, count: usize, max: usize },
    #[error(
        "{label} needs the capability {capability}, which is not granted: grant it with --allow {spelling}, or in Grants"
    )]
    Denied { label: String, capability: &'static str, spelling: &'static str },
}

impl CapabilityError {
    pub fn denied(grant: Grant, label: &str) -> CapabilityError {
        CapabilityError::Denied {
            label: label.to_owned(),
            capability: grant.as_str(),
            spelling: grant.spelling(),
        }
    }
}

impl CapabilityCall<'_> {
    pub(crate) fn room(&self) -> ReplyRoom {
        ReplyRoom { generation: self.generation, buffer_bytes: self.buffer_bytes }
    }

    /// How many bytes of content are worth reading for a reply. Whether the reply fits is known only once it is
    /// encoded.
    pub fn reply_bytes_max(&self) -> usize {
        self.buffer_bytes.saturating_sub(FRAME_BYTES)
    }

    /// A field of the only argument: operations with several parameters send one record.
    fn field(&self, name: &str) -> Option<&Value> {
        self.args.first().and_then(|record| record.get(name))
    }

    pub(crate) fn bad(&self, expected: &'static str) -> CapabilityError {
        let found = match self.args {
            [] => "nothing".to_owned(),
            [one] => cut(&one.to_string()),
            many => format!("{} arguments", many.len()),
        };
        CapabilityError::BadArgument { label: self.label.to_owned(), expected, found }
    }

    pub(crate) fn text(&self, expected: &'static str) -> Result<&str, CapabilityError> {
        self.args.first().and_then(Value::as_str).ok_or_else(|| self.bad(expected))
    }

    pub(crate) fn integer(&self, expected: &'static str) -> Result<i64, CapabilityError> {
        self.args.first().and_then(Value::as_i64).ok_or_else(|| self.bad(expected))
    }

    pub(crate) fn text_field(&self, name: &str, expected: &'static str) -> Result<&str, CapabilityError> {
        self.field(name).and_then(Value::as_str).ok_or_else(|| self.bad(expected))
    }

    /// `None` also for a field that is nil.
    pub(crate) fn optional(&self, name: &str) -> Option<&Value> {
        self.field(name).filter(|value| !value.is_nil())
    }

    /// Reads bytes as the generations send them: an array of integers (A), or bytes (B).
    pub(crate) fn bytes_field(&self, name: &str, expected: &'static str) -> Result<Vec<u8>, CapabilityError> {
        let bad = || self.bad(expected);
        match self.field(name).ok_or_else(bad)? {
            Value::Bin(bytes) => Ok(bytes.clone()),
            // As in the reference host, a number outside of a byte counts by its low eight bits.
            Value::Array(items) => {
                items.iter().map(|item| item.as_i64().map(|number| number as u8).ok_or_else(bad)).collect()
            }
            _ => Err(bad()),
        }
    }

    pub(crate) fn unknown(&self, capability: &'static str, known: &[&str]) -> CapabilityError {
        CapabilityError::UnknownOperation {
            capability,
            op: self.op.to_owned(),
            label: self.label.to_owned(),
            known: known.join(", "),
        }
    }
}

/// Longest part of a value that an error shows.
const SHOWN_CHARS_MAX: usize = 80;

pub(super) fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}

impl fmt::Debug for CapabilityAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CapabilityAnswer::Now(value) => f.debug_tuple("Now").field(value).finish(),
            CapabilityAnswer::AfterMs(ms, value) => f.debug_tuple("AfterMs").field(ms).field(value).finish(),
            CapabilityAnswer::Later(_) => f.write_str("Later"),
            CapabilityAnswer::Blocking(_) => f.write_str("Blocking"),
            CapabilityAnswer::Brief(_) => f.write_str("Brief"),
            CapabilityAnswer::Stream(_) => f.write_str("Stream"),
        }
    }
}
