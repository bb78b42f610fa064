//! The trait of event types.

use std::time::Duration;

use millrace_model::{DeliverAt, Timestamp};
use millrace_state::Schema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outgoing::{EventOptions, WithOptions, after};

/// A kind of event: its fields are the payload, everything else (id, time, priority, lineage) is stored beside it.
///
/// Implemented by `#[derive(Event)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    note = "derive it: #[derive(Event, Serialize, Deserialize)]"
)]
pub trait Event: Serialize + DeserializeOwned + Send + 'static {
    /// The topic under which the events are stored, `user.created` for `UserCreated`.
    const TYPE: &'static str;
    /// Handlers take events with higher priorities first.
    const PRIORITY: i32 = 100;
    /// Whether the name was given explicitly (`#[event(name = "..")]`). Two types of a program may share such a name;
    /// two types that derive the same name are refused.
    const NAME_GIVEN: bool = false;

    fn schema() -> Schema;

    /// Gives this event another priority than its type has.
    fn with_priority(self, priority: i32) -> WithOptions<Self> {
        self.with_options(EventOptions { priority: Some(priority), ..EventOptions::default() })
    }

    /// Gives this event a key. Events of the same key stay in order even if their topic has several partitions.
    fn with_key(self, key: impl Into<String>) -> WithOptions<Self> {
        self.with_options(EventOptions { key: Some(key.into()), ..EventOptions::default() })
    }

    /// Gives this event an id of your own, 1 to 255 bytes of printable ASCII: for 24 hours another event of this type
    /// with the same id is not stored again, and publishing it returns where the first one is. Only for events outside
    /// of handlers; events of handlers have such ids anyway.
    fn with_id(self, id: impl Into<String>) -> WithOptions<Self> {
        self.with_options(EventOptions { id: Some(id.into()), ..EventOptions::default() })
    }

    /// Delays this event: it is stored when this much time has passed since its commit, but has its id from the commit
    /// on. At most 365 days. Steps of the wall clock do not count while a process that moves delayed events lives: a
    /// session that runs handlers, or a server.
    ///
    /// A program that only publishes relies on such a process for its delayed events.
    fn with_delay(self, delay: Duration) -> WithOptions<Self> {
        self.with_options(EventOptions { deliver_at: Some(after(delay)), ..EventOptions::default() })
    }

    /// Delays this event until the wall clock shows this time, otherwise like [`Event::with_delay`]. A time in the past
    /// means now.
    fn deliver_at(self, at: Timestamp) -> WithOptions<Self> {
        self.with_options(EventOptions { deliver_at: Some(DeliverAt::At(at)), ..EventOptions::default() })
    }

    fn with_options(self, options: EventOptions) -> WithOptions<Self> {
        WithOptions { event: self, options }
    }
}
