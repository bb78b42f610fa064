//! Declarations of a session: its identity, its handlers, its schedules, and the events it sends.

use std::collections::BTreeMap;

use millrace_model::{
    Boot, DeliverAt, EventBody, HandlerId, Headers, JsonText, Lineage, Namespace, Priority, SessionId,
    TopicName,
};

use crate::interface::settings::HandlerSettings;

/// The identity of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIdentity {
    pub namespace: Namespace,
    pub session: SessionId,
    /// Host, process and whatever else helps a person to find the session.
    pub metadata: BTreeMap<String, String>,
    /// Which run of the machine this is, if the operating system can tell.
    pub boot: Option<Boot>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandlerSpec {
    pub id: HandlerId,
    /// The event type that the handler takes.
    pub topic: TopicName,
    /// Handlers with higher priority run first.
    pub priority: i32,
    pub from: From,
    /// The settings that the program gives with the handler; the configuration may override them.
    pub settings: HandlerSettings,
}

/// Where a new handler begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// With all retained events.
    #[default]
    Backlog,
    /// With events appended after its registration.
    Now,
}

/// An event to be sent. Its id and lineage are set where the batch is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutEvent {
    pub topic: TopicName,
    pub payload: JsonText,
    pub priority: Priority,
    pub key: Option<String>,
    pub headers: Option<BTreeMap<String, String>>,
    /// When the event is appended to the log. `None` = with its commit. Ignored by schedules, dead letters and replays.
    pub deliver_at: Option<DeliverAt>,
}

impl OutEvent {
    pub fn new(topic: TopicName, payload: JsonText) -> OutEvent {
        OutEvent { topic, payload, priority: Priority::default(), key: None, headers: None, deliver_at: None }
    }

    pub(crate) fn body(&self, lineage: Lineage) -> EventBody {
        EventBody {
            key: self.key.as_deref().map(Into::into),
            headers: self.headers.as_ref().map(Headers::from_map),
            priority: self.priority,
            lineage,
            payload: self.payload.clone(),
        }
    }
}

/// An event that is sent by the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSpec {
    /// Unique in the namespace: sessions that declare the same name share the schedule.
    pub name: String,
    /// Five fields (minute, hour, day of month, month, weekday), a nickname such as `@daily`, or `@every 90s`.
    pub cron: String,
    /// A name of the IANA database, or `UTC`.
    pub zone: String,
    pub catch_up: CatchUp,
    /// Each fire is delayed by up to this much, by the same amount in every session.
    pub jitter_ms: u64,
    pub event: OutEvent,
}

/// Which fires that were missed while no session ran are made up for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// The latest of them, however many were missed.
    #[default]
    One,
    /// All of them.
    All,
    /// None of them.
    None,
}
