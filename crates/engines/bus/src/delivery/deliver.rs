//! Delivery: choosing the member that gets an event, and deciding what follows when the delivery fails.

use millrace_model::{Now, Offset, TICK_MS};

use crate::bus::Bus;
use crate::groups::cursor::{Fetched, Open, OpenState};
use crate::groups::group::{CursorRef, GroupId};
use crate::groups::sticky::KeyHash;
use crate::interface::effect::Effect;
use crate::interface::input::ConnId;
use crate::interface::note::{Note, Redelivery};
use crate::sabotage::Sabotage;

/// Events of one partition sent before the group's next partition gets its turn.
const TURN_EVENTS: usize = 64;

impl Bus {
    /// Sends the group what it can take, in turns over its partitions, until members or events run out.
    pub(crate) fn deliver_ready(&mut self, now: Now, group: GroupId) {
        if self.stopping
            || self.groups.get(&group).is_none_or(|state| !state.placed || state.members.is_empty())
        {
            return;
        }
        let mut idle = 0;
        while let Some((partition, partitions)) = self.next_turn(group)
            && idle < partitions
        {
            let at = CursorRef { group, partition };
            if self.groups.get(&group).is_some_and(|state| state.can_take(&self.conns)) {
                self.fetch(now, at);
            }
            let moved = if self.groups.get(&group).is_some_and(|state| state.sticky) {
                self.send_sticky(now, at, TURN_EVENTS)
            } else {
                (0..TURN_EVENTS).take_while(|_| self.send_one(now, at)).count() > 0
            };
            idle = if moved { 0 } else { idle + 1 };
        }
        self.account_waiting(group);
    }

    fn next_turn(&mut self, group: GroupId) -> Option<(u32, u32)> {
        let state = self.groups.get_mut(&group)?;
        let partitions = state.cursors.len();
        state.turn = (state.turn + 1) % partitions.max(1);
        Some((state.turn as u32, partitions as u32))
    }

    /// Sends one event to one member. Returns false when there is no event, or no member to take it.
    fn send_one(&mut self, now: Now, at: CursorRef) -> bool {
        let ignore_window = self.sabotaged(Sabotage::IgnoreWindow);
        let elapsed = self.elapsed.instead_of_wall(now);
        let Some(group) = self.groups.get_mut(&at.group) else {
            return false;
        };
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return false;
        };
        let again = cursor.ready.first().copied();
        let fresh = cursor.fetched.front().map(|fetched| fetched.event.offset.0);
        let Some(offset) = again.into_iter().chain(fresh).min() else {
            return false;
        };
        let is_fresh = again != Some(offset);
        if is_fresh && !cursor.may_send(Offset(offset)) {
            return false;
        }
        if is_fresh {
            let Some(topic) = self.topics.get(&group.topic) else {
                return false;
            };
            let max_attempts = topic.max_attempts(&self.limits);
            let has_dead_letters = !topic.key.is_dead_letter();
            if let Some(state) = cursor
                .fetched
                .front()
                .and_then(|fetched| held_back(elapsed, fetched, max_attempts, has_dead_letters))
            {
                return self.hold_back(now, at, state);
            }
        } else if cursor.open.get(&offset).is_some_and(|open| open.event.is_none()) {
            return self.refetch(at, offset);
        }
        let avoid = cursor.open.get(&offset).and_then(|open| open.last).filter(|_| !is_fresh);
        let Some(conn) = group.pick(&self.conns, avoid, ignore_window) else {
            return false;
        };
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return false;
        };
        if is_fresh && let Some(fetched) = cursor.pop_fetched() {
            cursor.open.insert(offset, Open::from_fetched(fetched, OpenState::Ready));
        }
        self.lease(now, at, offset, conn);
        true
    }

    pub(crate) fn lease(&mut self, now: Now, at: CursorRef, offset: u64, conn: ConnId) {
        let (count_high, twice) =
            (self.sabotaged(Sabotage::CountTooHigh), self.sabotaged(Sabotage::DoubleLease));
        let Some(group) = self.groups.get_mut(&at.group) else {
            return;
        };
        let Some(topic) = self.topics.get_mut(&group.topic) else {
            return;
        };
        let deadline = now.mono + topic.ack_timeout_ms(&self.limits);
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return;
        };
        cursor.lease(offset, conn, deadline);
        let Some(open) = cursor.open.get(&offset) else {
            return;
        };
        let Some(event) = open.event.clone() else { return };
        let attempts = open.attempts + u32::from(count_high);
        if let Some(member) = group.members.get_mut(&conn) {
            member.inflight += 1;
        }
        if let Some(connection) = self.conns.get_mut(&conn) {
            connection.spend_credit();
        }
        topic.counters.delivered += 1;
        self.counters.delivered += 1;
        self.counters.redelivered += u64::from(attempts > 1);
        if twice && let Some(other) = group.members.keys().find(|other| **other != conn) {
            let (conn, group, event) = (*other, group.name.clone(), event.clone());
            self.effects.push(Effect::Deliver { conn, group, event, attempts });
        }
        if event.body.bytes() > self.limits.open_event_bytes_max
            && let Some(open) = cursor.open.get_mut(&offset)
        {
            // The body is dropped, the key is kept: the group may become sticky while the event is in flight.
            let key = || event.body.key.as_deref().map(|key| KeyHash::of(self.seed, key));
            open.key = open.key.or_else(key);
            open.event = None;
        }
        self.effects.push(Effect::Deliver { conn, group: group.name.clone(), event, attempts });
        self.wake_at(at, deadline);
    }

    /// Takes a fresh event into `open` without sending it: the event has to wait, or has used up its attempts already.
    pub(crate) fn hold_back(&mut self, now: Now, at: CursorRef, state: OpenState) -> bool {
        let seed = self.seed;
        let Some(cursor) = self.cursor_mut(at) else {
            return false;
        };
        let Some(fetched) = cursor.pop_fetched() else {
            return false;
        };
        let offset = fetched.event.offset.0;
        let key = fetched.event.body.key.as_deref().filter(|_| cursor.keyed.is_some());
        let key = key.map(|key| KeyHash::of(seed, key));
        cursor.open_keyed(fetched, state, key);
        match state {
            OpenState::Burying => {
                cursor.to_dead_letter.push_back(offset);
                cursor.flush_now = true;
                self.to_flush.insert(at);
            }
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
        let Some(group) = self.groups.get_mut(&at.group) else {
            return;
        };
        let Some(topic) = self.topics.get(&group.topic) else {
            return;
        };
        let max_attempts = topic.max_attempts(&self.limits);
        let Some(cursor) = group.cursors.get_mut(at.partition as usize) else {
            return;
        };
        let Some(open) = cursor.open.get_mut(&offset) else {
            return;
        };
        if let Some(reason) = reason {
            open.reason = Some(reason.to_owned());
        }
        let told = open.reason.clone().unwrap_or_default();
        let holder = match open.state {
            OpenState::Leased { conn, .. } => Some(conn),
            _ => None,
        };
        let (mut wake, mut decision) = (None, Redelivery::Again);
        let attempts = open.attempts;
        // An event whose body is not in memory cannot be copied: it is read again first, and then comes back here.
        if open.attempts >= max_attempts && !topic.key.is_dead_letter() && open.event.is_some() {
            decision = Redelivery::DeadLetter;
            open.state = OpenState::Burying;
            cursor.to_dead_letter.push_back(offset);
            cursor.flush_now = true;
            self.to_flush.insert(at);
        } else if let Some(ms) = delay_ms.filter(|ms| *ms > 0) {
            decision = Redelivery::Later { delay_ms: ms };
            let until = now.mono + ms + TICK_MS;
            open.state = OpenState::Waiting { until };
            open.not_before = Some(elapsed + ms + TICK_MS);
            wake = Some(until);
        } else {
            open.state = OpenState::Ready;
            cursor.ready.insert(offset);
        }
        cursor.tries_changed(offset);
        let flush_at = *cursor.flush_at.get_or_insert(now.mono + self.limits.delivered_flush_ms);
        if let Some(conn) = holder {
            group.released(conn);
        }
        self.wake_at(at, wake.map_or(flush_at, |wake| wake.min(flush_at)));
        if self.limits.note_redeliveries
            && (reason.is_some() || decision == Redelivery::DeadLetter)
            && let Some(place) = self.noted_place(at, offset)
        {
            self.note(Note::Redelivery { at: place, attempts, reason: told, decision });
        }
    }

    /// Wakes the cursors that are due: for expired leases, waits that are over, flushes and reads.
    pub(crate) fn wake_cursors(&mut self, now: Now) {
        while let Some((when, at)) = self.wakes.first().copied()
            && when <= now.mono
        {
            self.wakes.pop_first();
            let Some(cursor) = self.cursor_mut(at) else {
                continue;
            };
            cursor.wake = None;
            let mut expired = Vec::new();
            for (offset, open) in &mut cursor.open {
                match open.state {
                    OpenState::Leased { deadline, .. } if deadline <= now.mono => expired.push(*offset),
                    OpenState::Waiting { until } if until <= now.mono => {
                        open.state = OpenState::Ready;
                        open.not_before = None;
                        cursor.ready.insert(*offset);
                    }
                    _ => {}
                }
            }
            cursor.retry_at = cursor.retry_at.filter(|at| *at > now.mono);
            cursor.refused_until = cursor.refused_until.filter(|at| *at > now.mono);
            if cursor.flush_at.is_some_and(|at| at <= now.mono) {
                cursor.flush_at = None;
                cursor.flush_now = true;
                self.to_flush.insert(at);
            }
            for offset in expired {
                self.counters.timed_out += 1;
                self.requeue(now, at, offset, Some("not acknowledged in time"), None);
                self.loosen_key(at, offset);
            }
            if let Some(next) = self.cursor_mut(at).and_then(|cursor| cursor.next_wake()) {
                self.wake_at(at, next);
            }
            self.to_deliver.insert(at.group);
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
        return Some(OpenState::Burying);
    }
    let until = fetched.not_before.filter(|at| *at > now.wall)?;
    Some(OpenState::Waiting { until: now.mono_at(until) })
}
