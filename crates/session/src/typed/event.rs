//! What an event type promises.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outgoing::{EventOptions, WithOptions};
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

    fn with_options(self, options: EventOptions) -> WithOptions<Self> {
        WithOptions { event: self, options }
    }
}
