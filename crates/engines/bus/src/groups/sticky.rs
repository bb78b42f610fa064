//! Sticky groups: events of one key go to one member while it lives, one at a time, so that each key's events are
//! handled in their order however many members there are. Events without a key go to the members in turn.
//!
//! A group is sticky if its topic is, or while one of its members asks for it. Which offsets of a key wait for one
//! another is kept by each cursor (`cursor/window/by_key.rs`); which member a key belongs to is kept here, for the
//! whole group.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use millrace_model::{Now, Offset};

use crate::bus::Bus;
use crate::delivery::deliver::held_back;
use crate::groups::cursor::OpenState;
use crate::groups::group::{CursorRef, GroupId, GroupState};
use crate::groups::table::Located;
use crate::interface::input::ConnId;

/// The hash of a key. Two keys with the same hash share a member and wait for one another, which harms neither order
/// nor delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyHash(u64);

impl KeyHash {
    /// `seed` differs from start to start, so nobody can choose keys that collide.
    pub(crate) fn of(seed: u64, key: &str) -> KeyHash {
        let mut hasher = DefaultHasher::new();
        (seed, key).hash(&mut hasher);
        KeyHash(hasher.finish())
    }
}

/// The member that a key belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyMember {
    pub(crate) conn: ConnId,
    /// The member let an event of the key time out: the key's next delivery goes to another member, if one has room.
    pub(crate) timed_out: bool,
}

impl Bus {
    /// Recomputes whether a group is sticky. To be called after a group's members, its topic's settings or its
    /// partitions have changed.
    pub(crate) fn refresh_sticky(&mut self, group: GroupId) {
        let seed = self.seed;
        let Some(state) = self.groups.must_mut(group, &self.broken) else { return };
        let by_topic = self.topics.get(state.topic).is_some_and(|topic| topic.config.sticky);
        // Without members nothing is sent, and a sticky group stays sticky: what is known of its keys is kept for the
        // next member.
        let by_member = state.members.want_sticky();
        state.sticky = by_topic || by_member || (state.sticky && state.members.is_empty());
        for cursor in &mut state.cursors {
            cursor.window.keep_order_per_key(state.sticky, |key| KeyHash::of(seed, key));
        }
        if !state.sticky {
            self.groups.change_keys(group, |state| state.members.retain_keys(|_, _| false));
        }
    }

    /// Frees the keys of a member that left the group.
    pub(crate) fn forget_key_member(&mut self, group: GroupId, conn: ConnId) {
        self.groups.change_keys(group, |state| {
            state.members.retain_keys(|_, member| member.conn != conn);
            for cursor in &mut state.cursors {
                cursor.window.recall(conn, usize::MAX);
            }
        });
    }

    /// Called when an event timed out. A member that hangs would use up the attempts of every event of its keys, so the
    /// key may go to another member, unless another event of it is in flight (in a partition from before the topic
    /// grew).
    pub(crate) fn loosen_key(&mut self, at: CursorRef, offset: u64) {
        let Some(state) = self.groups.must_mut(at.group, &self.broken) else { return };
        let open = state.cursors.get(at.partition as usize).and_then(|cursor| cursor.window.get(offset));
        let Some((key, last)) = open.and_then(|open| Some((open.key()?, open.last()?))) else { return };
        if !state.cursors.iter().any(|cursor| cursor.window.has_in_flight(key)) {
            state.members.key_timed_out(key, last);
        }
    }

    /// Sends one partition of a sticky group what its keys and members allow. Returns false if nothing was sent or set
    /// aside.
    pub(crate) fn send_sticky(&mut self, now: Now, at: CursorRef, events_max: usize) -> bool {
        let (mut sent, mut opened) = (0, 0);
        self.recall_awaiting(at);
        let ready: Vec<u64> =
            self.groups.cursor_mut(at).map(|cursor| cursor.window.ready().collect()).unwrap_or_default();
        for offset in ready {
            if sent >= events_max || !self.has_room(at.group) {
                return sent > 0;
            }
            sent += usize::from(self.send_in_order(now, at, offset));
        }
        let (bodies_max, bytes_max) = (self.limits.sticky_waiting_bodies_max, self.limits.fetched_bytes_max);
        while sent < events_max && self.has_room(at.group) {
            let Some(offset) = self.open_next(now, at) else { break };
            opened += 1;
            self.groups.count_waiting(at.group);
            if self.send_in_order(now, at, offset) {
                sent += 1;
            } else if let Some(cursor) = self.groups.cursor_mut(at) {
                cursor.window.let_go_of_body(offset, bodies_max, bytes_max);
            }
        }
        sent + opened > 0
    }

    /// Makes events ready again whose member has room by now.
    fn recall_awaiting(&mut self, at: CursorRef) {
        let Some(Located { members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return;
        };
        for conn in cursor.window.awaited() {
            let room = if members.has_room(conn, &self.conns) { members.room_of(conn) } else { 0 };
            cursor.window.recall(conn, room);
        }
    }

    fn has_room(&self, group: GroupId) -> bool {
        self.groups.get(group).is_some_and(|state| state.members.can_take(&self.conns))
    }

    /// Moves the next event that was read into `open`. Returns `None` when there is none, or when so many wait for
    /// their keys that the partition has to wait for them.
    fn open_next(&mut self, now: Now, at: CursorRef) -> Option<u64> {
        let (seed, limits, elapsed) = (self.seed, &self.limits, self.elapsed.instead_of_wall(now));
        let over_total = self.groups.sticky_waiting() >= limits.sticky_waiting_total_max;
        let Located { topic, cursor, .. } = self.groups.must_locate(&mut self.topics, at, &self.broken)?;
        let (max_attempts, has_letters) = (topic.max_attempts(limits), topic.has_dead_letters());
        let fetched = cursor.read_ahead.first()?;
        let offset = fetched.offset();
        let waiting_max = if over_total { 1 } else { limits.sticky_waiting_max };
        if cursor.window.unsent() >= waiting_max || !cursor.may_send(Offset(offset)) {
            return None;
        }
        if let Some(state) = held_back(elapsed, fetched, max_attempts, has_letters) {
            self.hold_back(now, at, state);
            return Some(offset);
        }
        cursor.hold_back(OpenState::Ready, |key| KeyHash::of(seed, key))
    }

    /// Sends a ready event unless a lower one of its key is unfinished or its key's member has no room.
    fn send_in_order(&mut self, now: Now, at: CursorRef, offset: u64) -> bool {
        let Some(Located { members, cursor, .. }) =
            self.groups.must_locate(&mut self.topics, at, &self.broken)
        else {
            return false;
        };
        let Some(open) = cursor.window.get(offset).filter(|open| open.state() == OpenState::Ready) else {
            return false;
        };
        if !cursor.window.may_send_of_key(offset) {
            return false;
        }
        let (key, last, is_here) = (open.key(), open.last(), open.event().is_some());
        let member = key.and_then(|key| members.member_of(key));
        let home = member.filter(|member| !member.timed_out).map(|member| member.conn);
        if let Some(conn) = home.filter(|conn| !members.has_room(*conn, &self.conns)) {
            cursor.window.await_member(offset, conn);
            return false;
        }
        if !is_here {
            return self.refetch(at, offset);
        }
        let conn = match (home, key) {
            (Some(conn), _) => Some(conn),
            // A key without a member gets the next one in turn. A key whose member let an event time out gets another
            // member.
            (None, Some(_)) => members.pick(&self.conns, member.map(|member| member.conn)),
            // An event without a key avoids the member that had it last.
            (None, None) => members.pick(&self.conns, last),
        };
        let Some(conn) = conn else { return false };
        if let (Some(key), None) = (key, home) {
            self.remember_key_member(at.group, key, conn);
        }
        self.lease(now, at, offset, conn);
        true
    }

    fn remember_key_member(&mut self, group: GroupId, key: KeyHash, conn: ConnId) {
        let too_many = self.groups.sticky_keys() >= self.limits.sticky_keys_max;
        self.groups.change_keys(group, |state| {
            if too_many {
                state.forget_idle_keys();
            }
            state.members.set_member_of(key, conn);
        });
    }
}

impl GroupState {
    fn forget_idle_keys(&mut self) {
        let cursors = &self.cursors;
        self.members.retain_keys(|key, _| cursors.iter().any(|cursor| cursor.window.has_unfinished(key)));
    }
}
