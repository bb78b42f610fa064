//! A consumer group on one topic: its members, its settings, a cursor per partition.

use millrace_model::{Actor, Filter, Group, GroupRow, Partition, Stream, Timestamp, TopicKey};

use crate::groups::cursor::Cursor;
use crate::groups::members::Members;
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
    /// An operator holds deliveries back: see `pause.rs`.
    pub(crate) paused: bool,
    /// False until the group's first position is durable; until then subscriptions wait in `waiters`.
    pub(crate) has_position: bool,
    pub(crate) waiters: Vec<(ReplyTo, Subscribe)>,
    pub(crate) members: Members,
    /// A cursor for each partition of the topic.
    pub(crate) cursors: Vec<Cursor>,
    /// Events of one key go to one member, one at a time: see `sticky.rs`.
    pub(crate) sticky: bool,
    /// The group's part of `Groups::sticky_waiting`, the count of events that wait for their keys.
    waiting_counted: usize,
    /// The partition that had the last turn; the next one follows.
    turn: usize,
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
            paused: false,
            has_position: false,
            waiters: Vec::new(),
            members: Members::default(),
            cursors: Vec::new(),
            sticky: false,
            waiting_counted: 0,
            turn: 0,
        }
    }

    /// The group's row, as the store keeps it.
    pub(crate) fn row(&self) -> GroupRow {
        GroupRow {
            filter: self.filter.clone(),
            created: self.created,
            made_by: self.made_by.clone(),
            paused: self.paused,
        }
    }

    pub(crate) fn stream(&self, partition: u32) -> Stream {
        self.key.stream(Partition(partition))
    }

    /// Returns the next partition in turn, and how many there are.
    pub(crate) fn next_partition(&mut self) -> (u32, u32) {
        let partitions = self.cursors.len();
        self.turn = (self.turn + 1) % partitions.max(1);
        (self.turn as u32, partitions as u32)
    }

    pub(crate) fn fetched_bytes(&self) -> usize {
        self.cursors.iter().map(|cursor| cursor.read_ahead.bytes()).sum()
    }

    pub(super) fn waiting_counted(&self) -> usize {
        self.waiting_counted
    }

    /// Sets the group's part of the total of waiting events, and returns what it was. Only for `Groups`, which keeps
    /// the total.
    pub(super) fn set_waiting_counted(&mut self, waiting: usize) -> usize {
        std::mem::replace(&mut self.waiting_counted, waiting)
    }

    /// Whether a connection other than `except` holds events, in one partition or in any.
    pub(crate) fn is_busy(&self, partition: Option<u32>, except: Option<ConnId>) -> bool {
        let cursors =
            self.cursors.iter().zip(0..).filter(|(_, at)| partition.is_none_or(|wanted| wanted == *at));
        cursors.flat_map(|(cursor, _)| cursor.window.leases()).any(|(_, lease)| Some(lease.conn) != except)
    }
}
