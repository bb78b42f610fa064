//! A consumer group on one topic: its members, their windows, a cursor per partition.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use millrace_model::{AckMode, Actor, Filter, Group, Partition, Stream, Timestamp, TopicKey};

use crate::groups::connection::Connection;
use crate::groups::cursor::Cursor;
use crate::groups::sticky::{KeyHash, KeyMember};
use crate::interface::input::{ConnId, Subscribe};
use crate::interface::reply::ReplyTo;
use crate::topics::topic::TopicId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

/// Names a cursor: its group and its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CursorRef {
    pub(crate) group: GroupId,
    pub(crate) partition: u32,
}

#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) topic: TopicId,
    pub(crate) key: TopicKey,
    pub(crate) name: Group,
    pub(crate) filter: Filter,
    pub(crate) created: Timestamp,
    pub(crate) made_by: Option<Actor>,
    /// False until the group's first position is durable; until then subscriptions wait in `waiters`.
    pub(crate) placed: bool,
    pub(crate) waiters: Vec<(ReplyTo, Subscribe)>,
    pub(crate) members: BTreeMap<ConnId, Member>,
    pub(crate) cursors: Vec<Cursor>,
    /// Events of one key go to one member, one at a time: see `sticky.rs`.
    pub(crate) sticky: bool,
    /// Which member each key belongs to, while the group is sticky.
    pub(crate) key_members: BTreeMap<KeyHash, KeyMember>,
    /// The group's part of `Bus::sticky_waiting`, the count of events that wait for their keys.
    pub(crate) waiting_counted: usize,
    /// The partition that had the last turn; the next one follows.
    pub(crate) turn: usize,
    last_served: Option<ConnId>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) window: u32,
    pub(crate) inflight: u32,
    /// `None` = the topic's or the server's setting.
    pub(crate) ack_mode: Option<AckMode>,
    /// The member asks for events of one key to go to one member.
    pub(crate) sticky: bool,
}

/// The bus's state of each connection.
pub(crate) type Connections = BTreeMap<ConnId, Connection>;

impl Member {
    pub(crate) fn has_room(&self) -> bool {
        self.inflight < self.window
    }
}

impl GroupState {
    pub(crate) fn new(
        topic: TopicId,
        key: TopicKey,
        name: Group,
        filter: Filter,
        created: Timestamp,
    ) -> GroupState {
        GroupState {
            topic,
            key,
            name,
            filter,
            created,
            made_by: None,
            placed: false,
            waiters: Vec::new(),
            members: BTreeMap::new(),
            cursors: Vec::new(),
            sticky: false,
            key_members: BTreeMap::new(),
            waiting_counted: 0,
            turn: 0,
            last_served: None,
        }
    }

    pub(crate) fn stream(&self, partition: u32) -> Stream {
        self.key.stream(Partition(partition))
    }

    /// Returns the next member in turn that can take an event; `avoid` only if there is no other.
    pub(crate) fn pick(
        &mut self,
        conns: &Connections,
        avoid: Option<ConnId>,
        ignore_window: bool,
    ) -> Option<ConnId> {
        let has_room = |(conn, member): &(&ConnId, &Member)| {
            (member.has_room() || ignore_window) && conns.get(conn).is_some_and(Connection::can_receive)
        };
        let from = self.last_served.map_or(Unbounded, Excluded);
        let in_turn = self.members.range((from, Unbounded)).chain(self.members.iter());
        let mut second_choice = None;
        for (conn, _) in in_turn.filter(has_room).take(self.members.len() + 1) {
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
        self.members
            .iter()
            .any(|(conn, member)| member.has_room() && conns.get(conn).is_some_and(Connection::can_receive))
    }

    pub(crate) fn fetched_bytes(&self) -> usize {
        self.cursors.iter().map(|cursor| cursor.fetched_bytes).sum()
    }

    pub(crate) fn released(&mut self, conn: ConnId) {
        if let Some(member) = self.members.get_mut(&conn) {
            member.inflight = member.inflight.saturating_sub(1);
        }
    }

    /// Whether a connection other than `except` holds events, in one partition or in any.
    pub(crate) fn is_busy(&self, partition: Option<u32>, except: Option<ConnId>) -> bool {
        let cursors =
            self.cursors.iter().zip(0..).filter(|(_, at)| partition.is_none_or(|wanted| wanted == *at));
        cursors.flat_map(|(cursor, _)| cursor.leases()).any(|(_, holder)| Some(holder) != except)
    }
}
