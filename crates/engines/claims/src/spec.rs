//! What a session brings along: who it is, its handlers, its schedules, and the events it sends.

use std::collections::BTreeMap;

use millrace_model::{
    Boot, DeliverAt, EventBody, HandlerId, Headers, JsonText, Lineage, Namespace, Priority, SessionId,
    TopicName,
};

use crate::settings::HandlerSettings;

/// Who works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerIdentity {
    pub namespace: Namespace,
    pub session: SessionId,
    /// Host, process and whatever else helps a person to find it.
    pub metadata: BTreeMap<String, String>,
    /// Which run of the machine this is, if the system can tell.
    pub boot: Option<Boot>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HandlerSpec {
    pub id: HandlerId,
    /// The event type it takes.
    pub topic: TopicName,
    /// Higher runs first.
    pub priority: i32,
    pub from: From,
    /// What the program says beside the handler; the configuration may say otherwise.
    pub settings: HandlerSettings,
}

/// Where a handler that was never seen before begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// With everything that is retained.
    #[default]
    Backlog,
    /// With what is appended after its registration.
    Now,
}

/// An event on its way out. Id and lineage are given where the batch is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutEvent {
    pub topic: TopicName,
    pub payload: JsonText,
    pub priority: Priority,
    pub key: Option<String>,
    pub headers: Option<BTreeMap<String, String>>,
    /// When it gets its place in the log. `None` = with its commit. Schedules, dead letters and replays do not look at it.
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

/// An event that comes by the clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSpec {
    /// Unique in the namespace: sessions that bring the same name share the schedule.
    pub name: String,
    /// Five fields (minute, hour, day of month, month, weekday), a nickname such as `@daily`, or `@every 90s`.
    pub cron: String,
    /// A name of the IANA database, or `UTC`.
    pub zone: String,
    pub catch_up: CatchUp,
    /// Each fire is put off by up to this much, the same amount in every session.
    pub jitter_ms: u64,
    pub event: OutEvent,
}

/// What happens to fires that were missed while no session ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// However many were missed, the latest of them fires.
    #[default]
    One,
    /// Each of them fires.
    All,
    /// None of them does.
    None,
}
