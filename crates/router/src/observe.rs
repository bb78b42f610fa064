//! What the loop tells about itself: a note for the log, and an event for whoever subscribed to its type.
//!
//! Never about messages of the domain `Sys` themselves, and to nobody about what it did itself, or it would talk about
//! its own talk for ever.

use millrace_model::{Now, OsId, OsKind, OsMessage, OsMetadata, OsType};
use serde_json::{Value, json};

use crate::effect::Effect;
use crate::input::CapabilityId;
use crate::lanes::{Microtask, Task};
use crate::make;
use crate::note::{Audience, Note};
use crate::router::Router;

impl Note {
    /// The type of its event.
    pub fn ty(&self) -> &'static str {
        match self {
            Note::RoutingError { .. } => "Sys.RoutingError",
            Note::ActorFault { .. } => "Sys.ActorFault",
            Note::OrphanOutcome { .. } => "Sys.OrphanOutcome",
            Note::RequestTimedOut { .. } => "Sys.RequestTimedOut",
            Note::BootComplete { .. } => "Sys.BootComplete",
            Note::CapabilityUp { .. } => "Sys.CapabilityUp",
            Note::CapabilityDown { .. } => "Sys.CapabilityDown",
            Note::TimerSet { .. } => "Sys.TimerSet",
            Note::TimerFired { .. } => "Sys.TimerFired",
            Note::TimerCancelled { .. } => "Sys.TimerCancelled",
            Note::TimerLost { .. } => "Sys.TimerLost",
        }
    }

    /// The `data` of its event.
    pub fn data(&self) -> Value {
        let text = |id: &OsId| id.as_str().to_owned();
        match self {
            Note::RoutingError { kind, ty, id } => {
                json!({ "kind": kind.as_str(), "type": ty.as_str(), "id": text(id) })
            }
            Note::ActorFault { capability, message, request } => {
                json!({ "capability": capability, "message": message, "request": request.as_ref().map(text) })
            }
            Note::OrphanOutcome { from, ty, id, causation } => {
                json!({ "from": from, "type": ty.as_str(), "id": text(id), "causation": causation.as_ref().map(text) })
            }
            Note::RequestTimedOut { ty, id } => json!({ "type": ty.as_str(), "id": text(id) }),
            Note::BootComplete { capabilities, timers } => {
                json!({ "capabilities": capabilities, "timers": timers })
            }
            Note::CapabilityUp { capability } => json!({ "capability": capability }),
            Note::CapabilityDown { capability, reason } => {
                json!({ "capability": capability, "reason": reason })
            }
            Note::TimerSet { timer } | Note::TimerFired { timer } | Note::TimerCancelled { timer } => {
                json!({ "timerId": timer })
            }
            Note::TimerLost { timer, reason } => json!({ "timerId": timer, "reason": reason }),
        }
    }

    fn cause(&self) -> Option<&OsId> {
        match self {
            Note::RoutingError { id, .. }
            | Note::OrphanOutcome { id, .. }
            | Note::RequestTimedOut { id, .. } => Some(id),
            Note::ActorFault { request, .. } => request.as_ref(),
            _ => None,
        }
    }
}

impl Router {
    pub(crate) fn note(&mut self, note: Note, to: Audience) {
        self.microtasks.push_back(Microtask::Note { note, to });
    }

    /// A note that a message gave rise to; none if that was talk of the loop itself. `author` is the capability it came
    /// from, if it came from one.
    pub(crate) fn note_about(&mut self, message: &OsMessage, author: Option<CapabilityId>, note: Note) {
        if !message.ty.is_sys() {
            self.note(note, author.map_or(Audience::Subscribers, Audience::SubscribersBut));
        }
    }

    pub(crate) fn publish_note(&mut self, now: Now, note: Note, to: Audience) {
        let except = match to {
            Audience::SubscribersBut(one) => Some(one),
            Audience::Subscribers | Audience::Nobody => None,
        };
        if to != Audience::Nobody
            && let Ok(ty) = OsType::new(note.ty())
            && self.table.listeners(&ty).iter().any(|listener| Some(*listener) != except)
        {
            let metadata = OsMetadata {
                id: self.ids.draw(now.wall),
                timestamp: now.wall,
                correlation: None,
                causation: note.cause().cloned(),
                other: None,
            };
            let message = OsMessage { kind: OsKind::Event, ty, data: make::json(&note.data()), metadata };
            if !self.lanes.push_system(Task::Own { except, message }) {
                self.counters.notes_dropped += 1;
            }
        }
        self.effects.push(Effect::Note(note));
    }
}
