//! What an event type promises.

use std::time::Duration;

use millrace_model::{DeliverAt, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outgoing::{EventOptions, WithOptions, after};
use super::schema::Schema;

/// A kind of event: its fields are the payload, everything else (id, time, priority, lineage) is kept beside it.
///
/// Written by `#[derive(Event)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    note = "derive it: #[derive(Event, Serialize, Deserialize)]"
)]
pub trait Event: Serialize + DeserializeOwned + Send + 'static {
    /// The topic its events are stored under, `user.created` for `UserCreated`.
    const TYPE: &'static str;
    /// Handlers take higher priorities first.
    const PRIORITY: i32 = 100;
    /// The name was said by hand (`#[event(name = "..")]`). Two types of a program may then share it; two that derive the
    /// same name are refused.
    const NAME_GIVEN: bool = false;

    fn schema() -> Schema;

    /// This one event with another priority than its type has.
    fn with_priority(self, priority: i32) -> WithOptions<Self> {
        self.with_options(EventOptions { priority: Some(priority), ..EventOptions::default() })
    }

    /// Events of one key stay in order when their topic has several partitions.
    fn with_key(self, key: impl Into<String>) -> WithOptions<Self> {
        self.with_options(EventOptions { key: Some(key.into()), ..EventOptions::default() })
    }

    /// An id of your own, 1 to 255 bytes of printable ASCII: for 24 hours another event of this type with the same id is not
    /// stored again, and publishing it answers where the first one is. For events outside of handlers, whose events have
    /// such ids anyway.
    fn with_id(self, id: impl Into<String>) -> WithOptions<Self> {
        self.with_options(EventOptions { id: Some(id.into()), ..EventOptions::default() })
    }

    /// For later: the event is stored when this much time has passed since its commit, and has its id from the commit on. At
    /// most 365 days. Steps of the wall clock do not count while a process that moves delayed events lives: a session that
    /// runs handlers, or a server.
    ///
    /// A program that only publishes leaves its delayed events to those.
    fn with_delay(self, delay: Duration) -> WithOptions<Self> {
        self.with_options(EventOptions { deliver_at: Some(after(delay)), ..EventOptions::default() })
    }

    /// For later: the event is stored when the wall clock shows this time, otherwise as [`Event::with_delay`]. A time that is
    /// over means now.
    fn deliver_at(self, at: Timestamp) -> WithOptions<Self> {
        self.with_options(EventOptions { deliver_at: Some(DeliverAt::At(at)), ..EventOptions::default() })
    }

    fn with_options(self, options: EventOptions) -> WithOptions<Self> {
        WithOptions { event: self, options }
    }
}
