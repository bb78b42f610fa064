//! Notes: what happened, for logs and audits. Nothing waits for a note and nothing depends on it.

use std::sync::Arc;

use millrace_model::{Actor, Event, Group, Offset, Partition, Timestamp, TopicKey};

use crate::bus::Bus;
use crate::groups::group::CursorRef;
use crate::interface::effect::Effect;
use crate::interface::input::ConnId;

/// Something that happened to a topic of users; there are no notes about the server's own topics. Dead letters, a wrong
/// clock and events removed by retention are always noted, the rest if [`crate::BusLimits`] asks for it.
#[derive(Clone, Debug)]
pub enum Note {
    /// The copy in `TOPIC.DLQ`, as it was committed; its headers say where it comes from.
    DeadLettered { letter: Arc<Event> },
    /// At the start, the wall clock is `by_ms` ahead of the time that ages are counted from. A server that starts after
    /// the wall clock has been steady for `believed_in_ms` counts from the wall clock.
    ClockAhead { by_ms: u64, believed_in_ms: u64 },
    /// Retention removed events of this topic, from all its partitions together.
    Removed { topic: TopicKey, events: u64 },
    /// A member acknowledged; `events` is how many events the ack completed.
    Acked { at: NotedPlace, agent: Option<Actor>, events: u64 },
    /// A member refused an event.
    Nacked { at: NotedPlace, agent: Option<Actor>, reason: String },
    /// A delivery of an event that may carry a trace is over.
    DeliveryEnded {
        event: Arc<Event>,
        group: Group,
        attempts: u32,
        lasted_ms: u64,
        ended: Timestamp,
        end: DeliveryEnd,
    },
    /// The decision about an event whose delivery failed.
    Redelivery { at: NotedPlace, attempts: u32, reason: String, decision: Redelivery },
}

/// An event as one group sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedPlace {
    pub topic: TopicKey,
    pub group: Group,
    pub partition: Partition,
    pub offset: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryEnd {
    Acked,
    Refused,
    TimedOut,
    /// The connection was lost while it worked on this event.
    Disconnected,
    /// The delivery ended without having been an attempt.
    GivenBack,
}

impl DeliveryEnd {
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryEnd::Acked => "acked",
            DeliveryEnd::Refused => "refused",
            DeliveryEnd::TimedOut => "timeout",
            DeliveryEnd::Disconnected => "disconnect",
            DeliveryEnd::GivenBack => "given_back",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redelivery {
    /// The event is sent again as soon as a member has room.
    Again,
    /// The event is sent again after the delay that its consumer asked for.
    Later { delay_ms: u64 },
    /// The event has had all its attempts and becomes a dead letter.
    DeadLetter,
}

impl Redelivery {
    pub fn as_str(self) -> &'static str {
        match self {
            Redelivery::Again => "again",
            Redelivery::Later { .. } => "later",
            Redelivery::DeadLetter => "dead_letter",
        }
    }
}

impl Bus {
    pub(crate) fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }

    /// Returns `None` for the server's own topics, about which nothing is noted.
    pub(crate) fn noted_place(&self, at: CursorRef, offset: u64) -> Option<NotedPlace> {
        let group = self.groups.get(at.group)?;
        let topic = self.topics.get(group.topic).filter(|topic| !topic.system)?;
        Some(NotedPlace {
            topic: topic.key.clone(),
            group: group.name.clone(),
            partition: Partition(at.partition),
            offset: Offset(offset),
        })
    }

    pub(crate) fn agent_of(&self, conn: ConnId) -> Option<Actor> {
        self.conns.get(conn)?.agent().cloned()
    }
}
