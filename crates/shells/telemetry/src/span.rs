//! A span: one piece of work in a trace. Its maker gives beginning and end, which may lie in different tasks.

use std::time::{SystemTime, UNIX_EPOCH};

use millrace_model::Timestamp;

use crate::context::TraceContext;

/// Nanoseconds of Unix time in a millisecond, which is the unit of [`Timestamp`].
const NANOS_PER_MS: u64 = 1_000_000;

/// The part that the work plays in the trace, with OTLP's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Server = 2,
    Client = 3,
    Consumer = 5,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    Text(String),
    Number(u64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> AttributeValue {
        AttributeValue::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> AttributeValue {
        AttributeValue::Number(number)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace, and the span that this one is a part of.
    pub parent: TraceContext,
    pub id: [u8; 8],
    pub name: String,
    pub kind: SpanKind,
    pub began_ns: u64,
    pub ended_ns: u64,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Further events that the work was about.
    pub links: Vec<TraceContext>,
    /// Why the work failed.
    pub error: Option<String>,
}

impl Span {
    /// Returns a span without attributes. Its id is drawn at random.
    pub fn new(parent: TraceContext, name: String, kind: SpanKind, (began_ns, ended_ns): (u64, u64)) -> Span {
        Span {
            parent,
            id: rand::random(),
            name,
            kind,
            began_ns,
            ended_ns: ended_ns.max(began_ns),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<AttributeValue>) -> Span {
        self.attributes.push((name, value.into()));
        self
    }

    /// Adds an attribute that not every span has.
    #[must_use]
    pub fn with_some(self, name: &'static str, value: Option<impl Into<AttributeValue>>) -> Span {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

/// Returns a time of the store in the unit of spans.
pub fn nanos(at: Timestamp) -> u64 {
    at.0.saturating_mul(NANOS_PER_MS)
}

/// Returns the present in the unit of spans.
pub fn now_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
