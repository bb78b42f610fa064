//! Delivery: choosing the member that gets an event, and deciding what follows when the delivery fails.

use millrace_model::{Now, Offset, TICK_MS, never};

use crate::bus::Bus;
use crate::delivery::dead_letter::TIMED_OUT;
use crate::groups::cursor::{Fetched, Lease, Leased, Open, OpenState, Requeue, Woken};
use crate::groups::group::{CursorRef, GroupId};
use crate::groups::sticky::KeyHash;
use crate::groups::table::Located;
use crate::interface::effect::Effect;
use crate::interface::input::ConnId;
use crate::interface::note::{DeliveryEnd, Note, Redelivery};

/// Events of one partition sent before the group's next partition gets its turn.
const TURN_EVENTS: usize = 64;

impl Bus {
    /// Holds all deliveries back, or lets them go on with what has become ready meanwhile.
    pub(crate) fn pause_delivery(&mut self, is_paused: bool) {
        if self.lifecycle.set_delivery_paused(is_paused) && !is_paused {
            self.agenda.deliver_all(self.groups.ids());
        }
    }

    /// Sends the group what it can take, in turns over its partitions, until members or events run out.
    pub(crate) fn deliver_ready(&mut self, now: Now, group: GroupId) {
        if self.lifecycle.is_stopping() || self.lifecycle.is_delivery_paused() {
            return;
        }
        let mut idle = 0;
        while let Some(state) = self.groups.get_mut(group) {
            if !state.has_position || state.members.is_empty() {
                return;
            }
            if state.paused {
                break;
            }
            let (sticky, can_take) = (state.sticky, state.members.can_take(&self.conns));
            let (partition, partitions) = state.next_partition();
            if idle >= partitions {
                break;
            }
            let at = CursorRef { group, partition };
            if can_take {
                self.fetch(now, at);
            }
            let moved = if sticky {
                self.send_sticky(now, at, TURN_EVENTS)
            } else {
                (0..TURN_EVENTS).take_while(|_| self.send_one(now, at)).count() > 0
            };
            idle = if moved { 0 } else { idle + 1 };
        }
        self.groups.account_waiting(group);
    }

    /// Sends one event to one member. Returns false when there is no event, or no member to take it.
    fn send_one(&mut self, now: Now, at: CursorRef) -> bool {
        let Some(Located { topic, members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return false;
        };
        let again = cursor.window.next_ready();
        let fresh = cursor.read_ahead.first().map(Fetched::offset);
        let Some(offset) = again.into_iter().chain(fresh).min() else {
            return false;
        };
        let mut avoid = None;
        if again == Some(offset) {
            let open = cursor.window.get(offset);
            if open.is_some_and(|open| open.event().is_none()) {
                return self.refetch(at, offset);
            }
            avoid = open.and_then(Open::last);
        } else {
            if !cursor.may_send(Offset(offset)) {
                return false;
            }
            let elapsed = self.elapsed.instead_of_wall(now);
            let held_back = cursor.read_ahead.first().and_then(|fetched| {
                held_back(elapsed, fetched, topic.max_attempts(&self.limits), topic.has_dead_letters())
            });
            if let Some(state) = held_back {
                return self.hold_back(now, at, state);
            }
        }
        let Some(conn) = members.pick(&self.conns, avoid) else {
            return false;
        };
        if again != Some(offset) {
            cursor.open_to_lease();
        }
        self.lease(now, at, offset, conn);
        true
    }

    pub(crate) fn lease(&mut self, now: Now, at: CursorRef, offset: u64, conn: ConnId) {
        let Some(Located { topic, name, members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return;
        };
        let deadline = now.mono + topic.ack_timeout_ms(&self.limits);
        let (seed, bytes_max) = (self.seed, self.limits.open_event_bytes_max);
        let lease = Lease { conn, since: now.mono, deadline };
        let Some(Leased { event, attempts }) =
            cursor.lease(offset, lease, bytes_max, |key| KeyHash::of(seed, key))
        else {
            never!(self.broken, "offset {offset} of {at:?} is to be sent, and is not in memory");
            return;
        };
        members.leased(conn);
        if let Some(connection) = self.conns.get_mut(conn) {
            connection.spend_credit();
        }
        topic.counters.delivered += 1;
        self.counters.delivered += 1;
        self.counters.redelivered += u64::from(attempts > 1);
        self.effects.push(Effect::Deliver { conn, group: name.clone(), event, attempts });
        self.wake_at(at, deadline);
    }

    /// Takes a fresh event into the window without sending it: the event has to wait, or has used up its attempts
    /// already.
    pub(crate) fn hold_back(&mut self, now: Now, at: CursorRef, state: OpenState) -> bool {
        let seed = self.seed;
        let Some(cursor) = self.groups.must_cursor_mut(at, &self.broken) else {
            return false;
        };
        if cursor.hold_back(state, |key| KeyHash::of(seed, key)).is_none() {
            never!(self.broken, "an event of {at:?} is to be held back, and none was read");
            return false;
        }
        match state {
            OpenState::ToDeadLetter => self.agenda.flush(at),
            OpenState::Waiting { until } => self.wake_at(at, until.max(now.mono)),
            _ => {}
        }
        true
    }

    /// Decides what follows after a delivery failed (`reason`), or after an event that is to be sent again was read
    /// again (no `reason`): the event becomes ready, waits, or goes to the dead letters if it has had all its attempts.
    pub(crate) fn requeue(
        &mut self,
        now: Now,
        at: CursorRef,
        offset: u64,
        reason: Option<&str>,
        delay_ms: Option<u64>,
    ) {
        let elapsed = self.elapsed.at(now);
        let Some(Located { topic, name, members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return;
        };
        let Some(open) = cursor.window.get(offset) else {
            never!(self.broken, "the delivery of offset {offset} of {at:?} failed, but the offset is done");
            return;
        };
        let (attempts, holder) = (open.attempts(), open.holder());
        let ended = reason.filter(|_| self.limits.note_traced_deliveries).and_then(|_| open.ended());
        // An event whose body is not in memory cannot be copied: it is read again first, and then comes back here.
        let gives_up = attempts >= topic.max_attempts(&self.limits)
            && topic.has_dead_letters()
            && open.event().is_some();
        let flush_at = cursor.flush.request_by(now.mono + self.limits.delivered_flush_ms);
        let (mut wake, mut decision) = (flush_at, Redelivery::Again);
        let next = if gives_up {
            decision = Redelivery::DeadLetter;
            self.agenda.flush(at);
            Requeue::DeadLetter
        } else if let Some(ms) = delay_ms.filter(|ms| *ms > 0) {
            decision = Redelivery::Later { delay_ms: ms };
            let until = now.mono + ms + TICK_MS;
            wake = wake.min(until);
            Requeue::Later(until, elapsed + ms + TICK_MS)
        } else {
            Requeue::Now
        };
        cursor.requeue(offset, reason, next);
        if let Some(conn) = holder {
            members.released(conn);
        }
        let end = reason.map(DeliveryEnd::of);
        if let Some(note) = ended.zip(end).and_then(|(ended, end)| ended.note(now, name, end)) {
            self.effects.push(Effect::Note(note));
        }
        let notes = self.limits.note_redeliveries && (reason.is_some() || gives_up);
        let told = cursor.window.get(offset).and_then(Open::reason).filter(|_| notes);
        let told = told.unwrap_or_default().to_owned();
        self.wake_at(at, wake);
        if notes && let Some(place) = self.noted_place(at, offset) {
            self.note(Note::Redelivery { at: place, attempts, reason: told, decision });
        }
    }

    /// Wakes the cursors that are due: for expired leases, waits that are over, flushes and reads.
    pub(crate) fn wake_cursors(&mut self, now: Now) {
        while let Some(at) = self.agenda.take_due(now.mono) {
            // The group may have been deleted since its cursor was registered.
            let Some(cursor) = self.groups.cursor_mut(at) else {
                continue;
            };
            let Woken { expired, flush } = cursor.wake(now.mono);
            if flush {
                self.agenda.flush(at);
            }
            for offset in expired {
                self.counters.timed_out += 1;
                self.requeue(now, at, offset, Some(TIMED_OUT), None);
                self.loosen_key(at, offset);
            }
            if let Some(next) = self.groups.cursor_mut(at).and_then(|cursor| cursor.next_wake()) {
                self.wake_at(at, next);
            }
            self.agenda.deliver(at.group);
        }
    }
}

/// Returns how a fresh event's stored history holds it back: `None` (send it), wait, or give up on it. `now` must be
/// elapsed time, because delays are stored in it.
pub(crate) fn held_back(
    now: Now,
    fetched: &Fetched,
    max_attempts: u32,
    has_dead_letters: bool,
) -> Option<OpenState> {
    if fetched.attempts >= max_attempts && has_dead_letters {
        return Some(OpenState::ToDeadLetter);
    }
    let until = fetched.not_before.filter(|at| *at > now.wall)?;
    Some(OpenState::Waiting { until: now.mono_at(until) })
}
