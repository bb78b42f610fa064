//! Notes about deliveries that ended, for traces: only about events that carry one.

use std::sync::Arc;

use millrace_model::{Event, Group, Now, may_be_traced};

use crate::bus::Bus;
use crate::delivery::dead_letter::{DISCONNECTED, TIMED_OUT};
use crate::groups::cursor::{Lease, Open};
use crate::groups::group::CursorRef;
use crate::interface::effect::Effect;
use crate::interface::note::{DeliveryEnd, Note};

/// A delivery that is over.
#[derive(Debug)]
pub(crate) struct EndedDelivery {
    pub(crate) lease: Lease,
    pub(crate) attempts: u32,
    /// `None` for an event that was dropped from memory: there is no note about its deliveries.
    pub(crate) event: Option<Arc<Event>>,
}

impl EndedDelivery {
    pub(crate) fn note(self, now: Now, group: &Group, end: DeliveryEnd) -> Option<Note> {
        let event = self.event.filter(|event| may_be_traced(event.body.headers.as_ref()))?;
        let lasted_ms = now.mono.0.saturating_sub(self.lease.since.0);
        let (group, attempts) = (group.clone(), self.attempts);
        Some(Note::DeliveryEnded { event, group, attempts, lasted_ms, ended: now.wall, end })
    }
}

impl DeliveryEnd {
    /// The end of a delivery that failed for a reason that is stored with the event.
    pub(crate) fn of(reason: &str) -> DeliveryEnd {
        match reason {
            TIMED_OUT => DeliveryEnd::TimedOut,
            DISCONNECTED => DeliveryEnd::Disconnected,
            _ => DeliveryEnd::Refused,
        }
    }
}

impl Bus {
    /// Called before a delivery is given back.
    pub(crate) fn note_given_back(&mut self, now: Now, at: CursorRef, offset: u64) {
        if !self.limits.note_traced_deliveries {
            return;
        }
        let Some(group) = self.groups.get(at.group) else { return };
        let cursor = group.cursors.get(at.partition as usize);
        let ended = cursor.and_then(|cursor| cursor.window.get(offset)).and_then(Open::ended);
        if let Some(note) = ended.and_then(|ended| ended.note(now, &group.name, DeliveryEnd::GivenBack)) {
            self.effects.push(Effect::Note(note));
        }
    }
}
