//! Events that a subscriber does not get: each is counted, and `Sys.EventDropped` reports them, at most once per
//! subscriber and `event_dropped_ms`.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{Mono, Now, OsId, OsMessage, OsType};

use crate::interface::input::CapabilityId;
use crate::interface::note::{Audience, Cause, Note};
use crate::router::Router;

/// Drops of one subscriber since the last report about them.
#[derive(Debug)]
struct Untold {
    told_at: Mono,
    dropped: u64,
    /// The newest of them.
    last: Option<(OsType, OsId, Cause, String)>,
}

/// Keyed by the subscriber's name, so that there are no more entries than capabilities.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    untold: BTreeMap<Arc<str>, Untold>,
}

impl Drops {
    /// Returns when the next report of drops is due, if any are unreported.
    pub(crate) fn first_due(&self, pause_ms: u64) -> Option<Mono> {
        let waiting = self.untold.values().filter(|one| one.dropped > 0);
        waiting.map(|one| one.told_at + pause_ms).min()
    }
}

impl Router {
    /// Counts and reports that `subscriber` does not get this event. `author` is the capability that emitted it; the
    /// report does not go to the author.
    pub(crate) fn drop_event(
        &mut self,
        now: Now,
        subscriber: Arc<str>,
        author: Option<CapabilityId>,
        message: &OsMessage,
        reason: String,
    ) {
        self.counters.events_undelivered += 1;
        // Drops of the loop's own events are not reported.
        if message.ty.is_sys() {
            return;
        }
        let pause_ms = self.limits.event_dropped_ms;
        let (ty, id, cause) = (message.ty.clone(), message.metadata.id.clone(), Cause::of(message));
        if let Some(untold) = self.drops.untold.get_mut(&subscriber)
            && now.mono < untold.told_at + pause_ms
        {
            untold.dropped += 1;
            untold.last = Some((ty, id, cause, reason));
            return;
        }
        let before = self.drops.untold.get(&subscriber).map_or(0, |one| one.dropped);
        let capability = subscriber.to_string();
        self.drops.untold.insert(subscriber, Untold { told_at: now.mono, dropped: 0, last: None });
        let note = Note::EventDropped { capability, ty, id, reason, dropped: before + 1 };
        self.note(note, author.map_or(Audience::Subscribers, Audience::SubscribersBut), Some(cause));
    }

    /// Reports drops that were held back until the pause since the last report was over.
    pub(crate) fn tell_drops(&mut self, now: Now) {
        let pause_ms = self.limits.event_dropped_ms;
        if self.drops.untold.is_empty() || self.drops.first_due(pause_ms).is_none_or(|at| at > now.mono) {
            return;
        }
        let mut due = Vec::new();
        self.drops.untold.retain(|subscriber, one| {
            if now.mono < one.told_at + pause_ms {
                return true;
            }
            let dropped = std::mem::take(&mut one.dropped);
            let Some((ty, id, cause, reason)) = one.last.take() else { return false };
            one.told_at = now.mono;
            let capability = subscriber.to_string();
            due.push((Note::EventDropped { capability, ty, id, reason, dropped }, cause));
            true
        });
        for (note, cause) in due {
            self.note(note, Audience::Subscribers, Some(cause));
        }
    }
}
