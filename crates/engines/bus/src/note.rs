//! What happened, for logs and audits: nothing waits for it and nothing depends on it.

use std::sync::Arc;

use millrace_model::{Actor, Event, Group, Offset, Partition, TopicKey};

use crate::bus::Bus;
use crate::effect::Effect;
use crate::group::CursorRef;
use crate::input::ConnId;

/// About topics of users only: nothing is told about the server's own. Dead letters, the clock and what retention removed
/// are always told, the rest if [`crate::BusLimits`] asks for it.
#[derive(Clone, Debug)]
pub enum Note {
    /// The copy in `TOPIC.DLQ`, as it was committed; its headers say where it comes from.
    DeadLettered { letter: Arc<Event> },
    /// The wall clock is so far ahead of what ages are counted from. A server that starts after it has been steady for
    /// `believed_in_ms` counts from it.
    ClockAhead { by_ms: u64, believed_in_ms: u64 },
    /// Retention removed events of this topic, from all its partitions together.
    Removed { topic: TopicKey, events: u64 },
    /// A member acknowledged; `events` is how many that completed.
    Acked { at: NotedPlace, agent: Option<Actor>, events: u64 },
    /// A member refused.
    Nacked { at: NotedPlace, agent: Option<Actor>, reason: String },
    /// What became of an event whose delivery failed.
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
pub enum Redelivery {
    /// As soon as a member has room.
    Again,
    /// After the delay its consumer asked for.
    Later { delay_ms: u64 },
    /// It has had all its attempts.
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

    /// `None` for topics nothing is told about.
    pub(crate) fn noted_place(&self, at: CursorRef, offset: u64) -> Option<NotedPlace> {
        let group = self.groups.get(&at.group)?;
        let topic = self.topics.get(&group.topic).filter(|topic| !topic.system)?;
        Some(NotedPlace {
            topic: topic.key.clone(),
            group: group.name.clone(),
            partition: Partition(at.partition),
            offset: Offset(offset),
        })
    }

    pub(crate) fn agent_of(&self, conn: ConnId) -> Option<Actor> {
        self.conns.get(&conn)?.by.as_ref().map(|who| who.agent.clone())
    }
}
