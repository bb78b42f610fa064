//! Reports of the loop about itself: a note for the log, and an event for the capabilities that subscribe to its type.
//!
//! No report is about a message of the domain `Sys`, and none goes to the capability that caused it: otherwise reports
//! would cause reports for ever.

use std::sync::Arc;

use millrace_model::{Now, OsId, OsKind, OsMessage, OsMetadata, OsType};
use serde_json::{Value, json};

use crate::interface::effect::Effect;
use crate::interface::input::CapabilityId;
use crate::interface::note::{Audience, Cause, Note};
use crate::reports::messages;
use crate::router::Router;
use crate::routing::lanes::{Microtask, Task};

impl Note {
    /// The type of the note's event.
    pub fn ty(&self) -> &'static str {
        match self {
            Note::RoutingError { .. } => "Sys.RoutingError",
            Note::ActorFault { .. } => "Sys.ActorFault",
            Note::OrphanOutcome { .. } => "Sys.OrphanOutcome",
            Note::Routed { .. } => "Sys.Routed",
            Note::EventDropped { .. } => "Sys.EventDropped",
            Note::RequestTimedOut { .. } => "Sys.RequestTimedOut",
            Note::BootComplete { .. } => "Sys.BootComplete",
            Note::CapabilityUp { .. } => "Sys.CapabilityUp",
            Note::CapabilityDown { .. } => "Sys.CapabilityDown",
            Note::TimerSet { .. } => "Sys.TimerSet",
            Note::TimerFired { .. } => "Sys.TimerFired",
            Note::TimerCancelled { .. } => "Sys.TimerCancelled",
            Note::TimerRefused { .. } => "Sys.TimerRefused",
            Note::TimerWaits { .. } => "Sys.TimerWaits",
            Note::TimerLost { .. } => "Sys.TimerLost",
        }
    }

    /// The `data` of the note's event.
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
            Note::Routed { kind, ty, id, to } => {
                json!({ "kind": kind.as_str(), "type": ty.as_str(), "id": text(id), "to": to })
            }
            Note::EventDropped { capability, ty, id, reason, dropped } => {
                json!({ "capability": capability, "type": ty.as_str(), "id": text(id), "reason": reason, "dropped": dropped })
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
            Note::TimerRefused { timer, agent, ty, reason } => {
                json!({ "timerId": timer, "agent": agent, "type": ty.as_str(), "reason": reason })
            }
            Note::TimerWaits { timer, ty, wait_ms } => {
                json!({ "timerId": timer, "type": ty, "waitMs": wait_ms })
            }
            Note::TimerLost { timer, reason } => json!({ "timerId": timer, "reason": reason }),
        }
    }
}

impl Router {
    /// Queues a note. `cause` is the message it follows from; `None` for what the loop does by itself.
    pub(crate) fn note(&mut self, note: Note, to: Audience, cause: Option<Cause>) {
        self.microtasks.push_back(Microtask::Note { note, to, cause });
    }

    /// Queues a note about a message, unless the message is of the domain `Sys`. `author` is the capability that
    /// emitted the message, if one did.
    pub(crate) fn note_about(&mut self, message: &OsMessage, author: Option<CapabilityId>, note: Note) {
        if !message.ty.is_sys() {
            let to = author.map_or(Audience::Subscribers, Audience::SubscribersBut);
            self.note(note, to, Some(Cause::of(message)));
        }
    }

    /// Emits `Sys.Routed` for a message that was put into mailboxes, if some capability subscribes to it (RFC 0032,
    /// 17).
    pub(crate) fn routed(&mut self, message: &OsMessage, author: Option<CapabilityId>, to: &[Arc<str>]) {
        let wanted = || OsType::new("Sys.Routed").is_ok_and(|ty| !self.table.listeners(&ty).is_empty());
        if !self.limits.routing_events || !wanted() {
            return;
        }
        let to = to.iter().map(ToString::to_string).collect();
        let (kind, ty, id) = (message.kind, message.ty.clone(), message.metadata.id.clone());
        self.note_about(message, author, Note::Routed { kind, ty, id, to });
    }

    pub(crate) fn publish_note(&mut self, now: Now, note: Note, to: Audience, cause: Option<Cause>) {
        let except = match to {
            Audience::SubscribersBut(one) => Some(one),
            Audience::Subscribers | Audience::Nobody => None,
        };
        if to != Audience::Nobody
            && let Ok(ty) = OsType::new(note.ty())
            && self.table.listeners(&ty).iter().any(|listener| Some(*listener) != except)
        {
            let cause = cause.unwrap_or_else(|| self.start(now));
            let metadata = OsMetadata {
                id: self.ids.draw(now.wall),
                timestamp: now.wall,
                // A message without a correlation begins an undertaking of its own.
                correlation: Some(cause.correlation.unwrap_or_else(|| cause.id.clone())),
                causation: Some(cause.id),
                other: None,
            };
            let message = OsMessage { kind: OsKind::Event, ty, data: messages::json(&note.data()), metadata };
            if !self.lanes.push_system(Task::Own { except, message }) {
                self.counters.notes_dropped += 1;
            }
        }
        self.effects.push(Effect::Note(note));
    }

    /// The start of this process, the cause of everything the loop does by itself. The start has an id but is not a
    /// message.
    fn start(&mut self, now: Now) -> Cause {
        let id = self.start_id.get_or_insert_with(|| self.ids.draw(now.wall)).clone();
        Cause { id, correlation: None }
    }
}
