//! Pages of events and ranges of rows: values that the store port and the engine `resolve` share.

use std::sync::Arc;

use bytes::Bytes;

use crate::log::event::Event;
use crate::log::stream::Offset;

/// Bounds of one [`Page`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    pub events_max: usize,
    /// A page ends before the event that would pass this, but holds at least one event if there is one.
    pub bytes_max: usize,
}

/// A stretch of a stream. Every offset from the one asked for up to `through` is either in `events`, or in
/// `damaged`, or legally gone (trimmed or removed). Nothing is said about offsets past `through`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    pub events: Vec<Arc<Event>>,
    /// Offsets whose event failed its checksum or vanished: reported, set aside, never silently skipped.
    pub damaged: Vec<Offset>,
    pub through: Offset,
}

/// Keys from `from` (included) to `to` (excluded; `None` = to the end of the table).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    pub from: String,
    pub to: Option<String>,
}

impl KeyRange {
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// All keys that begin with `prefix`, which must end in an ASCII character.
    pub fn prefix(prefix: &str) -> KeyRange {
        let mut end = prefix.as_bytes().to_vec();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        KeyRange { from: prefix.to_owned(), to: String::from_utf8(end).ok().filter(|end| !end.is_empty()) }
    }

    pub fn contains(&self, key: &str) -> bool {
        key >= self.from.as_str() && self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// A row of a small table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub key: String,
    pub value: Bytes,
}
