//! A POLL that is being answered: how long it waits, and how the pending events share the room in its reply.

use std::num::NonZeroU32;

use crate::messages::{EVENT_BYTES, POLL_REPLY_HEAD_BYTES, PollEvent, PollReply, PollTimeout};
use crate::time::MonoNs;
use crate::timers::LoopTimers;
use crate::watches::WatchTable;
use crate::zcl1::HEADER_BYTES;

/// A POLL whose reply is not queued yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenPoll {
    pub(crate) rid: u32,
    pub(crate) max_events: NonZeroU32,
    /// `None`: the POLL waits until there is an event.
    pub(crate) deadline: Option<MonoNs>,
}

/// How the slots of a reply are shared between watches and timers.
///
/// If all pending events fit, all are delivered. Otherwise timers are guaranteed half of the slots and watches the
/// other half, and each side also gets the slots that the other does not need. With a single slot the two sides take
/// turns.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The single slot of the last POLL went to a timer while a watch was waiting for it.
    watch_is_next: bool,
}

/// Returns the number of POLLs within which a watch is reported at the latest, if it and `ready - 1` other watches stay
/// ready and each POLL has room for `max_events` events, whatever timers are due.
///
/// Each POLL with two or more slots reports at least `max_events - max_events / 2` watches, oldest first; of the POLLs
/// with one slot, at least every second one reports a watch.
pub fn polls_until_reported_max(ready: usize, max_events: usize) -> usize {
    match max_events {
        0 | 1 => ready * 2,
        slots => ready.div_ceil(slots - slots / 2),
    }
}

impl OpenPoll {
    pub(crate) fn new(rid: u32, max_events: NonZeroU32, timeout: PollTimeout, now: MonoNs) -> OpenPoll {
        let deadline = match timeout {
            PollTimeout::Ms(ms) => Some(now.after_ms(ms)),
            PollTimeout::Forever => None,
        };
        OpenPoll { rid, max_events, deadline }
    }

    /// Returns how many events a reply of at most `room` bytes may have.
    pub(crate) fn slots(&self, room: usize) -> usize {
        let events = room.saturating_sub(HEADER_BYTES + POLL_REPLY_HEAD_BYTES) / EVENT_BYTES;
        events.min(self.max_events.get() as usize)
    }
}

impl Sharing {
    /// Takes pending events for a reply with `slots` slots: watches first, then timers, each in the order in which they
    /// became ready or due. Events that do not fit stay pending.
    pub(crate) fn take_events(
        &mut self,
        slots: usize,
        now: MonoNs,
        watches: &mut WatchTable,
        timers: &mut LoopTimers,
    ) -> PollReply {
        let ready = watches.ready.len();
        let due = timers.count_due(now, slots);
        let (of_watches, of_timers) = self.split(slots, ready, due);
        let mut events = Vec::with_capacity(of_watches + of_timers);
        // A watch on a handle with computed readiness is queued again at once, behind the others: `of_watches`, counted
        // before, keeps it from being reported twice.
        events.extend((0..of_watches).map_while(|_| watches.take_ready()));
        let due = (0..of_timers).map_while(|_| timers.take_due(now));
        events.extend(due.map(|timer_id| PollEvent::Timer { timer_id, at: now }));
        let more = ready > of_watches || timers.is_due(now);
        PollReply { more, events }
    }

    fn split(&mut self, slots: usize, ready: usize, due: usize) -> (usize, usize) {
        if slots == 1 && ready > 0 && due > 0 {
            self.watch_is_next = !self.watch_is_next;
            return if self.watch_is_next { (0, 1) } else { (1, 0) };
        }
        self.watch_is_next = false;
        let of_timers = due.min((slots / 2).max(slots.saturating_sub(ready)));
        (ready.min(slots - of_timers), of_timers)
    }
}
