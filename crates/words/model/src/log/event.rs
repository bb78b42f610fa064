//! The event: a row of the log, consumed by groups in offset order and by durable handlers through claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clocks::time::Timestamp;
use crate::log::id::EventId;
use crate::log::json::JsonText;
use crate::log::stream::{Offset, Stream};

/// The priority of an event. Handlers take higher priorities first; groups ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(pub i32);

pub const PRIORITY_DEFAULT: Priority = Priority(100);

impl Default for Priority {
    fn default() -> Self {
        PRIORITY_DEFAULT
    }
}

/// A JSON object of strings to strings, kept as the text its author wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers(JsonText);

impl Headers {
    /// Returns `None` when a value is not a string.
    pub fn from_raw(raw: &RawValue) -> Option<Headers> {
        serde_json::from_str::<BTreeMap<String, String>>(raw.get()).ok()?;
        Some(Headers(JsonText::from_checked(raw)))
    }

    pub fn from_map(map: &BTreeMap<String, String>) -> Headers {
        let text = serde_json::to_vec(map).unwrap_or_else(|_| b"{}".to_vec());
        Headers(JsonText::from_stored(text.into()))
    }

    /// Wraps bytes that this type once produced, such as a store reads back.
    pub fn from_stored(bytes: Bytes) -> Headers {
        Headers(JsonText::from_stored(bytes))
    }

    pub fn json(&self) -> &JsonText {
        &self.0
    }

    pub fn to_map(&self) -> BTreeMap<String, String> {
        serde_json::from_str(self.0.as_str()).unwrap_or_default()
    }

    /// Returns the headers with one more in front; the others stay as their author wrote them.
    pub fn with(headers: Option<&Headers>, name: &str, value: &str) -> Headers {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let text = headers.map_or("{}", |headers| headers.0.as_str());
        let rest = text.trim_start().strip_prefix('{').unwrap_or("}");
        let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
        let text = format!("{{{}:{}{comma}{rest}", quoted(name), quoted(value));
        Headers(JsonText::from_stored(text.into()))
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.to_map().remove(name)
    }
}

/// The events that an event follows from. Empty for an event that a client published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The event that began the chain; absent = this event itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<EventId>,
    /// How many handlers lie between the root and this event.
    #[serde(default)]
    pub depth: u32,
    /// The event or message that directly caused this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<EventId>,
    /// The id that all messages of one undertaking share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<EventId>,
}

/// The parts of an event that its author decides. Held in an `Arc`, because a publish in flight, its batch and its
/// deliveries share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBody {
    pub key: Option<Box<str>>,
    pub headers: Option<Headers>,
    pub priority: Priority,
    pub lineage: Lineage,
    pub payload: JsonText,
}

impl EventBody {
    pub fn of(payload: JsonText) -> EventBody {
        EventBody {
            key: None,
            headers: None,
            priority: PRIORITY_DEFAULT,
            lineage: Lineage::default(),
            payload,
        }
    }

    /// Returns what the event counts in buffers and batches: its variable parts plus a flat sum for the rest.
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 96;
        FIXED
            + self.payload.bytes().len()
            + self.key.as_ref().map_or(0, |key| key.len())
            + self.headers.as_ref().map_or(0, |headers| headers.json().bytes().len())
    }
}

/// An event on its way into the store: no offset, no time, and an id only if its author brought one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub id: Option<EventId>,
    pub body: Arc<EventBody>,
}

/// An event as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub stream: Stream,
    pub offset: Offset,
    pub ts: Timestamp,
    pub id: EventId,
    pub body: Arc<EventBody>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_added_and_the_others_stay_as_they_were() {
        let with = |text: Option<&str>| {
            let headers = text.map(|text| Headers::from_stored(Bytes::copy_from_slice(text.as_bytes())));
            Headers::with(headers.as_ref(), "t", "a\"b").json().as_str().to_owned()
        };
        assert_eq!(with(None), r#"{"t":"a\"b"}"#);
        assert_eq!(with(Some(" { } ")), r#"{"t":"a\"b" } "#);
        assert_eq!(with(Some(r#"{ "z" : "\u0031","a":""}"#)), r#"{"t":"a\"b", "z" : "\u0031","a":""}"#);
    }
}
