//! What the loop tells about itself: a note for the log, and an event for whoever subscribed to its type.
//!
//! Never about messages of the domain `Sys` themselves, or it would talk about its own talk for ever.

use millrace_model::{Now, OsId, OsKind, OsMessage, OsMetadata, OsType};
use serde_json::{Value, json};

use crate::effect::Effect;
use crate::lanes::{Microtask, Task};
use crate::make;
use crate::note::Note;
use crate::router::Router;

impl Note {
    /// The type of its event.
    pub fn ty(&self) -> &'static str {
        match self {
            Note::RoutingError { .. } => "Sys.RoutingError",
            Note::ActorFault { .. } => "Sys.ActorFault",
            Note::OrphanOutcome { .. } => "Sys.OrphanOutcome",
            Note::RequestTimedOut { .. } => "Sys.RequestTimedOut",
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
    pub(crate) fn note(&mut self, _now: Now, note: Note) {
        self.microtasks.push_back(Microtask::Note(note));
    }

    /// A note that a message gave rise to; none if that was talk of the loop itself.
    pub(crate) fn note_about(&mut self, now: Now, message: &OsMessage, note: Note) {
        if !message.ty.is_sys() {
            self.note(now, note);
        }
    }

    pub(crate) fn publish_note(&mut self, now: Now, note: Note) {
        if let Ok(ty) = OsType::new(note.ty())
            && !self.table.listeners(&ty).is_empty()
        {
            let metadata = OsMetadata {
                id: self.ids.draw(now.wall),
                timestamp: now.wall,
                correlation: None,
                causation: note.cause().cloned(),
                other: None,
            };
            let message = OsMessage { kind: OsKind::Event, ty, data: make::json(&note.data()), metadata };
            if !self.lanes.push_system(Task::Own { message }) {
                self.counters.notes_dropped += 1;
            }
        }
        self.effects.push(Effect::Note(note));
    }
}
