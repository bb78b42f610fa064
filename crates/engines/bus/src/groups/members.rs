//! The members of a group: their windows, whose turn it is, and which keys belong to whom.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use millrace_model::AckMode;

use crate::groups::connection::Connections;
use crate::groups::sticky::{KeyHash, KeyMember};
use crate::interface::input::ConnId;

#[derive(Debug, Default)]
pub(crate) struct Members {
    by_conn: BTreeMap<ConnId, Member>,
    last_served: Option<ConnId>,
    /// Which member each key belongs to, while the group is sticky.
    keys: BTreeMap<KeyHash, KeyMember>,
}

#[derive(Debug)]
pub(crate) struct Member {
    window: u32,
    inflight: u32,
    /// `None` = the topic's or the server's setting.
    ack_mode: Option<AckMode>,
    /// The member asks for events of one key to go to one member.
    sticky: bool,
}

impl Member {
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    pub(crate) fn inflight(&self) -> u32 {
        self.inflight
    }

    pub(crate) fn ack_mode(&self) -> Option<AckMode> {
        self.ack_mode
    }

    fn has_room(&self) -> bool {
        self.inflight < self.window
    }
}

impl Members {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_conn.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_conn.len()
    }

    pub(crate) fn contains(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&Member> {
        self.by_conn.get(&conn)
    }

    pub(crate) fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.by_conn.keys().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnId, &Member)> {
        self.by_conn.iter().map(|(conn, member)| (*conn, member))
    }

    /// Adds a member, or changes its settings. Returns its window so far, `None` if it is new.
    pub(crate) fn join(
        &mut self,
        conn: ConnId,
        window: u32,
        ack_mode: Option<AckMode>,
        sticky: bool,
    ) -> Option<u32> {
        let inflight = self.by_conn.get(&conn).map_or(0, |member| member.inflight);
        let before = self.by_conn.insert(conn, Member { window, inflight, ack_mode, sticky });
        before.map(|member| member.window)
    }

    pub(crate) fn leave(&mut self, conn: ConnId) -> Option<Member> {
        self.by_conn.remove(&conn)
    }

    /// Removes all members, because the engine stops.
    pub(crate) fn clear(&mut self) {
        self.by_conn.clear();
    }

    pub(crate) fn want_sticky(&self) -> bool {
        self.by_conn.values().any(|member| member.sticky)
    }

    /// Returns the next member in turn that can take an event; `avoid` only if there is no other.
    pub(crate) fn pick(&mut self, conns: &Connections, avoid: Option<ConnId>) -> Option<ConnId> {
        let has_room = |(conn, member): &(&ConnId, &Member)| member.has_room() && conns.can_receive(**conn);
        let from = self.last_served.map_or(Unbounded, Excluded);
        let in_turn = self.by_conn.range((from, Unbounded)).chain(self.by_conn.iter());
        let mut second_choice = None;
        for (conn, _) in in_turn.filter(has_room).take(self.by_conn.len() + 1) {
            if Some(*conn) != avoid {
                self.last_served = Some(*conn);
                return Some(*conn);
            }
            second_choice = Some(*conn);
        }
        self.last_served = second_choice.or(self.last_served);
        second_choice
    }

    /// Whether a member can take an event, so that reading ahead is worth it.
    pub(crate) fn can_take(&self, conns: &Connections) -> bool {
        self.by_conn.iter().any(|(conn, member)| member.has_room() && conns.can_receive(*conn))
    }

    pub(crate) fn has_room(&self, conn: ConnId, conns: &Connections) -> bool {
        self.by_conn.get(&conn).is_some_and(Member::has_room) && conns.can_receive(conn)
    }

    pub(crate) fn room_of(&self, conn: ConnId) -> usize {
        self.by_conn.get(&conn).map_or(0, |member| member.window.saturating_sub(member.inflight) as usize)
    }

    /// Counts an event that goes to a member.
    pub(crate) fn leased(&mut self, conn: ConnId) {
        if let Some(member) = self.by_conn.get_mut(&conn) {
            member.inflight += 1;
        }
    }

    /// Counts an event that a connection holds no longer. The connection may have left the group before.
    pub(crate) fn released(&mut self, conn: ConnId) {
        if let Some(member) = self.by_conn.get_mut(&conn) {
            member.inflight = member.inflight.saturating_sub(1);
        }
    }

    /// Checks the members; `held` says how many events each connection holds.
    pub(crate) fn check(&self, held: &BTreeMap<ConnId, u32>, sticky: bool, stopping: bool) {
        for (conn, member) in &self.by_conn {
            let held = held.get(conn).copied().unwrap_or(0);
            assert_eq!(member.inflight, held, "events that {conn:?} holds");
        }
        for conn in held.keys() {
            assert!(self.by_conn.contains_key(conn), "{conn:?} holds events and is not a member");
        }
        assert!(sticky || self.keys.is_empty(), "keys have members in a group that is not sticky");
        for KeyMember { conn, .. } in self.keys.values().filter(|_| !stopping) {
            assert!(self.by_conn.contains_key(conn), "a key belongs to {conn:?}, which is not a member");
        }
    }

    pub(crate) fn keys(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn member_of(&self, key: KeyHash) -> Option<KeyMember> {
        self.keys.get(&key).copied()
    }

    pub(crate) fn key_timed_out(&mut self, key: KeyHash, conn: ConnId) {
        if let Some(member) = self.keys.get_mut(&key).filter(|member| member.conn == conn) {
            member.timed_out = true;
        }
    }

    pub(super) fn set_member_of(&mut self, key: KeyHash, conn: ConnId) {
        self.keys.insert(key, KeyMember { conn, timed_out: false });
    }

    pub(super) fn retain_keys(&mut self, keep: impl Fn(KeyHash, KeyMember) -> bool) {
        self.keys.retain(|key, member| keep(*key, *member));
    }
}
