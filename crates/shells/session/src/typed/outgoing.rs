//! An event on its way into the store: checked, serialized, and no longer typed.

use std::collections::BTreeMap;
use std::time::Duration;

use millrace_model::{DeliverAt, EventId, IdError, JsonText, NameError, Priority, Timestamp, TopicName};
use millrace_state::{CanonicalError, canonical};

use super::event::Event;
use super::names::EventName;

/// Options of a single event besides its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// Replaces the priority of the type.
    pub priority: Option<i32>,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// Replaces the id that Millrace would make: an event with the same id is stored once.
    pub id: Option<String>,
    /// When the event is stored. `None` = with its commit.
    pub deliver_at: Option<DeliverAt>,
}

/// An event together with its options.
#[derive(Clone, Debug)]
pub struct WithOptions<E> {
    pub(crate) event: E,
    pub(crate) options: EventOptions,
}

impl<E: Event> WithOptions<E> {
    #[must_use]
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.options.priority = Some(priority);
        self
    }

    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.options.key = Some(key.into());
        self
    }

    /// Like [`Event::with_id`].
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.options.id = Some(id.into());
        self
    }

    /// Like [`Event::with_delay`].
    #[must_use]
    pub fn with_delay(mut self, delay: Duration) -> Self {
        self.options.deliver_at = Some(after(delay));
        self
    }

    /// Like [`Event::deliver_at`].
    #[must_use]
    pub fn deliver_at(mut self, at: Timestamp) -> Self {
        self.options.deliver_at = Some(DeliverAt::At(at));
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.headers.insert(name.into(), value.into());
        self
    }
}

/// An event that is ready to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The type that the event had.
    pub name: EventName,
    pub topic: TopicName,
    pub priority: Priority,
    pub payload: JsonText,
    pub key: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// `None` = an id that Millrace makes.
    pub id: Option<EventId>,
    /// When the event is stored. `None` = with its commit.
    pub deliver_at: Option<DeliverAt>,
}

/// Why an event may not be published. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("the event `{event_type}` cannot be stored: {source}")]
    Unwritable { event_type: &'static str, source: CanonicalError },
    /// No handler could take the event: its JSON cannot be decoded as the same type.
    #[error(
        "the event `{event_type}` cannot be read back from what it is written as ({reason}): look for floats that \
         are not finite and fields that are skipped on one way only"
    )]
    Unreadable { event_type: &'static str, reason: String },
    #[error(
        "the event type `{event_type}` is no name for a topic ({source}): give it another by #[event(name = \"..\")]"
    )]
    BadType { event_type: &'static str, source: NameError },
    #[error("the id of the event `{event_type}` is not usable: {source}")]
    BadId { event_type: &'static str, source: IdError },
    /// Events of handlers have ids of their own, so that a retry stores nothing twice.
    #[error(
        "the event `{event_type}` brings an id: only events outside of handlers and schedules may, leave it out"
    )]
    OwnId { event_type: &'static str },
    /// A schedule itself says when its events are sent.
    #[error(
        "the event `{event_type}` is delayed: events of schedules may not be, change the schedule's time"
    )]
    Delayed { event_type: &'static str },
    #[error(
        "two types of this program derive the event name `{event_type}`: {first} and {second}; give one of them another \
         by #[event(name = \"..\")], or say this one by hand if they are meant to be the same events"
    )]
    NameShared { event_type: &'static str, first: &'static str, second: &'static str },
}

/// An event, or an event with options.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    note = "derive it: #[derive(Event, Serialize, Deserialize)]"
)]
pub trait IntoOutgoing {
    fn into_outgoing(self) -> Result<Outgoing, EventError>;
}

impl<E: Event> IntoOutgoing for E {
    fn into_outgoing(self) -> Result<Outgoing, EventError> {
        outgoing(&self, EventOptions::default())
    }
}

impl<E: Event> IntoOutgoing for WithOptions<E> {
    fn into_outgoing(self) -> Result<Outgoing, EventError> {
        outgoing(&self.event, self.options)
    }
}

/// To put events of different types into one list, make each of them `Outgoing` first.
impl IntoOutgoing for Outgoing {
    fn into_outgoing(self) -> Result<Outgoing, EventError> {
        Ok(self)
    }
}

impl Outgoing {
    /// Refuses an id that the author brought where Millrace has to make one.
    pub(crate) fn without_own_id(self) -> Result<Outgoing, EventError> {
        match self.id {
            Some(_) => Err(EventError::OwnId { event_type: self.name.event_type }),
            None => Ok(self),
        }
    }

    /// Refuses a delayed event where its time is given otherwise.
    pub(crate) fn without_delay(self) -> Result<Outgoing, EventError> {
        match self.deliver_at {
            Some(_) => Err(EventError::Delayed { event_type: self.name.event_type }),
            None => Ok(self),
        }
    }
}

/// Rounds up to whole milliseconds, so that the delay is never shorter than requested.
pub(super) fn after(delay: Duration) -> DeliverAt {
    DeliverAt::AfterMs(u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

fn outgoing<E: Event>(event: &E, options: EventOptions) -> Result<Outgoing, EventError> {
    let event_type = E::TYPE;
    let topic = TopicName::new(event_type).map_err(|source| EventError::BadType { event_type, source })?;
    let payload = canonical(event).map_err(|source| EventError::Unwritable { event_type, source })?;
    // Better refused here, where the author can correct it, than dead-lettered in every handler.
    serde_json::from_str::<E>(payload.as_str())
        .map_err(|error| EventError::Unreadable { event_type, reason: error.to_string() })?;
    let EventOptions { priority, key, headers, id, deliver_at } = options;
    let id = id.map(|id| EventId::parse(&id)).transpose();
    let id = id.map_err(|source| EventError::BadId { event_type, source })?;
    let (name, priority) = (EventName::of::<E>(), Priority(priority.unwrap_or(E::PRIORITY)));
    Ok(Outgoing { name, topic, priority, payload, key, headers, id, deliver_at })
}
