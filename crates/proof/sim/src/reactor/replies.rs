//! Compares what the guest reads with what the record knows: answers in order, and the events of POLL.

use std::collections::BTreeMap;

use millrace_reactor::zcl1::{ErrorPayload, Frame, HEADER_BYTES, STATUS_OK};
use millrace_reactor::{PollEvent, PollReply, Readiness, polls_until_reported_max};

use super::record::{Record, Timer, WaitingPoll, violation};
use crate::check::Violation;

/// The size of a POLL's reply before its events, and the size of an event.
const POLL_BYTES: usize = HEADER_BYTES + 16;
const EVENT_BYTES: usize = 32;

impl Record {
    /// Takes the bytes that one read returned. Returns the frame that they complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Violation> {
        self.part.extend_from_slice(bytes);
        match Frame::decode_first(&self.part) {
            Ok((_, [])) => Ok(Some(std::mem::take(&mut self.part))),
            Ok((_, rest)) => {
                let detail = format!("a read goes {} bytes beyond its frame", rest.len());
                Err(violation("answered_once", detail))
            }
            Err(_) => Ok(None),
        }
    }

    /// Checks the frame against the next expected answer.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let invariant = if self.after_wrong { "bad_frame_harms_none" } else { "answered_once" };
        let wrong = |detail: String| Err(violation(invariant, detail));
        let Ok(frame) = Frame::decode(bytes) else { return wrong("no frame".into()) };
        let Some(expected) = self.expected.pop_front() else {
            return wrong(format!("{:?} answers nothing", frame.header));
        };
        let header = frame.header;
        if header.check_reply().is_err() || (header.op, header.rid) != (expected.op, expected.rid) {
            return wrong(format!("{header:?} is no answer to {expected:?}"));
        }
        let error = expected.error.map(|error| error.message());
        let is = match header.status {
            STATUS_OK => frame.payload.is_empty().then_some(None),
            _ => ErrorPayload::decode(frame.payload).ok().map(|payload| Some(payload.message)),
        };
        match is == Some(error) {
            true => Ok(()),
            false => wrong(format!("rid {} is answered {is:?}, should be {error:?}", header.rid)),
        }
    }

    /// Checks the reply of the POLL that is open.
    pub(super) fn poll_reply(&mut self, bytes: &[u8]) -> Result<PollReply, Violation> {
        let wrong = |detail: String| Err(violation("answered_once", detail));
        let Some(poll) = self.poll.take() else { return wrong("a reply of POLL, and no POLL".into()) };
        let Ok(frame) = Frame::decode(bytes) else { return wrong("no frame".into()) };
        let header = frame.header;
        if (header.op, header.rid, header.status) != (poll.op, poll.rid, STATUS_OK) {
            return wrong(format!("{header:?} is no answer to {poll:?}"));
        }
        let Ok(reply) = PollReply::decode(frame.payload) else { return wrong("no reply of POLL".into()) };
        if !self.can_answer(&poll) {
            return Err(self.early(&poll, &reply));
        }
        if bytes.len() > poll.room.min(self.limits.frame_bytes_max) {
            let detail = format!("a reply of {} bytes, {} have room", bytes.len(), poll.room);
            return Err(violation("queues_bounded", detail));
        }
        self.unread_bytes += bytes.len();
        self.is_interrupted = false;
        self.check_events(&poll, &reply)?;
        Ok(reply)
    }

    fn early(&self, poll: &WaitingPoll, reply: &PollReply) -> Violation {
        let detail = format!("POLL {} has nothing to say at {} and says {reply:?}", poll.rid, self.now);
        let fired = reply.events.iter().find_map(|event| match event {
            PollEvent::Timer { timer_id, .. } => Some(self.timers.get(&timer_id.0.get())),
            PollEvent::Ready { .. } => None,
        });
        violation(
            match fired {
                Some(Some(timer)) if timer.has_fired => "timer_on_grid",
                Some(Some(_)) => "timer_never_early",
                Some(None) => "timer_once",
                None if reply.events.is_empty() => "wakes_in_time",
                None => "only_what_is_watched",
            },
            detail,
        )
    }

    /// Returns how many events the reply of a POLL may have.
    pub(super) fn slots(&self, poll: &WaitingPoll) -> usize {
        let room = poll.room.min(self.limits.frame_bytes_max);
        poll.max_events.min(room.saturating_sub(POLL_BYTES) / EVENT_BYTES)
    }

    /// Returns the watches that have something to report, and what.
    pub(super) fn ready(&self) -> BTreeMap<u64, Readiness> {
        let reports = self.watches.iter().map(|(id, watch)| (*id, self.report(watch)));
        reports.filter(|(_, report)| !report.is_empty()).collect()
    }

    /// Returns the due timers, in the order in which they must be delivered.
    pub(super) fn due(&self) -> Vec<(u64, Timer)> {
        let is_due = |timer: &Timer| timer.due <= self.now;
        let timers = self.timers.iter().map(|(id, timer)| (*id, *timer));
        let mut due: Vec<(u64, Timer)> = timers.filter(|(_, timer)| is_due(timer)).collect();
        due.sort_by_key(|(_, timer)| (timer.due, timer.order));
        due
    }

    fn check_events(&mut self, poll: &WaitingPoll, reply: &PollReply) -> Result<(), Violation> {
        let (slots, ready, due) = (self.slots(poll), self.ready(), self.due());
        let mut reported = Vec::new();
        let mut fired = Vec::new();
        for event in &reply.events {
            match *event {
                PollEvent::Ready { watch_id, handle, readiness } => {
                    let id = watch_id.0.get();
                    let is_right = ready.get(&id) == Some(&readiness)
                        && self.watches.get(&id).is_some_and(|watch| watch.handle == handle)
                        && !reported.contains(&id);
                    if !is_right {
                        let known = (ready.get(&id), self.watches.get(&id));
                        let detail = format!("{event:?}, the record says {known:?}");
                        return Err(violation("only_what_is_watched", detail));
                    }
                    reported.push(id);
                }
                PollEvent::Timer { timer_id, at } => {
                    self.check_timer(timer_id.0.get(), at.0, &fired)?;
                    fired.push(timer_id.0.get());
                }
            }
        }
        let oldest = due.iter().map(|(id, _)| *id).take(fired.len());
        if !oldest.eq(fired.iter().copied()) {
            return Err(late(&due, &fired));
        }
        let pending = ready.len() + due.len();
        if reply.events.len() > slots {
            let detail = format!("{} events, {slots} are allowed", reply.events.len());
            return Err(violation("queues_bounded", detail));
        }
        if reply.events.len() != pending.min(slots) {
            let detail = format!("{} of {pending} events, {slots} fit", reply.events.len());
            let is_repeating = due.iter().any(|(id, timer)| timer.has_fired && !fired.contains(id));
            return Err(violation(if is_repeating { "timer_on_grid" } else { "nothing_lost" }, detail));
        }
        self.check_sides(slots, (ready.len(), reported.len()), (due.len(), fired.len()))?;
        if reply.more != (pending > slots) {
            let detail = format!("more is {}, {pending} events are pending, {slots} fit", reply.more);
            return Err(violation("more_exact", detail));
        }
        self.fire(&fired);
        self.passed_over(slots, &ready, &reported)
    }

    fn check_timer(&self, id: u64, at: u64, fired: &[u64]) -> Result<(), Violation> {
        let detail = |timer| format!("timer {id} fires at {at}, now {}, the record says {timer:?}", self.now);
        let Some(timer) = self.timers.get(&id).filter(|_| !fired.contains(&id)) else {
            return Err(violation("timer_once", detail(None)));
        };
        if timer.due > self.now || at != self.now {
            let invariant = if timer.has_fired { "timer_on_grid" } else { "timer_never_early" };
            return Err(violation(invariant, detail(Some(timer))));
        }
        Ok(())
    }

    /// Half of the slots are for timers, half for watches; a single slot alternates between the two sides.
    fn check_sides(
        &mut self,
        slots: usize,
        (ready, reported): (usize, usize),
        (due, fired): (usize, usize),
    ) -> Result<(), Violation> {
        let lost = &mut self.single_slots_lost;
        if slots > 1 || ready == 0 || due == 0 {
            *lost = (0, 0);
        } else if fired > 0 {
            *lost = (0, lost.1 + 1);
        } else {
            *lost = (lost.0 + 1, 0);
        }
        let is_shared = slots < 2 || fired >= due.min(slots / 2) && reported >= ready.min(slots - slots / 2);
        if !is_shared || lost.0.max(lost.1) > 1 {
            let detail = format!(
                "of {slots} slots watches have {reported} (want {ready}), timers {fired} (want {due})"
            );
            return Err(violation("sides_share", detail));
        }
        Ok(())
    }

    fn fire(&mut self, fired: &[u64]) {
        for id in fired {
            let Some(timer) = self.timers.remove(id).filter(|timer| timer.interval_ns > 0) else { continue };
            let periods = (self.now - timer.due) / timer.interval_ns + 1;
            let due = u128::from(timer.due) + u128::from(periods) * u128::from(timer.interval_ns);
            // A due time beyond the end of the clock is set to its end: the guest still knows the timer.
            let due = u64::try_from(due).unwrap_or(u64::MAX);
            self.arm(*id, due, timer.interval_ns, true);
        }
    }

    fn passed_over(
        &mut self,
        slots: usize,
        ready: &BTreeMap<u64, Readiness>,
        reported: &[u64],
    ) -> Result<(), Violation> {
        for (id, watch) in &mut self.watches {
            if !ready.contains_key(id) || reported.contains(id) {
                watch.leaves_queue();
                continue;
            }
            watch.passed_over += 1;
            watch.ready_max = watch.ready_max.max(ready.len());
            watch.slots_min = watch.slots_min.min(slots);
            let bound = polls_until_reported_max(watch.ready_max, watch.slots_min);
            if watch.passed_over >= bound {
                let detail = format!("watch {id} is ready and not among the events of {bound} POLLs");
                return Err(violation("watch_within_bound", detail));
            }
        }
        Ok(())
    }
}

/// The violation for timers that fired although others had been due for longer.
fn late(due: &[(u64, Timer)], fired: &[u64]) -> Violation {
    let missing = due.iter().take(fired.len()).find(|(id, _)| !fired.contains(id));
    let is_repeating = missing.is_some_and(|(_, timer)| timer.has_fired);
    let invariant = if is_repeating { "timer_on_grid" } else { "timers_in_order" };
    violation(invariant, format!("fired {fired:?}, due {due:?}"))
}
