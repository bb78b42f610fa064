//! What the bus is waiting for: one entry per effect that takes time.

use std::sync::Arc;

use millrace_model::{Durability, EventBody, Group, Offset, Stream, TopicKey};

use crate::group::{CursorRef, GroupId};
use crate::input::{From, Subscribe};
use crate::reply::ReplyTo;
use crate::topic::TopicId;

/// An append on its way, so that its event can be put together when it comes back with an offset.
#[derive(Debug)]
pub(crate) struct Appending {
    pub(crate) topic: TopicId,
    pub(crate) stream: Stream,
    pub(crate) body: Arc<EventBody>,
}

/// A delayed event on its way into its table.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) to: ReplyTo,
    pub(crate) topic: TopicKey,
    pub(crate) durability: Durability,
}

#[derive(Debug)]
pub(crate) enum Pending {
    Publish {
        to: ReplyTo,
        topic: TopicKey,
        single: bool,
        durability: Durability,
        appends: Vec<Appending>,
    },
    Delay(Delayed),
    /// A cursor's row, with the dead letters that go with it.
    Flush {
        cursor: CursorRef,
        committed: Offset,
        confirms: Vec<ReplyTo>,
        appends: Vec<Appending>,
    },
    /// A group gets its first position, or a new one.
    Placement(Placement),
    TopicWrite {
        to: ReplyTo,
        topic: TopicKey,
        created: bool,
    },
    TopicDelete {
        to: ReplyTo,
        topic: TopicKey,
    },
    GroupDelete {
        to: ReplyTo,
        topic: TopicKey,
        group: Group,
    },
    /// Rows of another engine.
    Write {
        to: ReplyTo,
    },
    MoveDue {
        appends: Vec<Appending>,
    },
    /// A row nobody waits for.
    Row,
    Trim {
        topic: TopicId,
        partition: u32,
        start: Offset,
    },
    Read {
        cursor: CursorRef,
    },
    Refetch {
        cursor: CursorRef,
        offset: u64,
    },
    FindStart {
        topic: TopicId,
        partition: u32,
    },
    ScanDue,
    ReadTopic {
        topic: TopicKey,
    },
    /// A page or a removal of the pass under way.
    Compact,
}

/// Where a group is to go, and what follows.
#[derive(Debug)]
pub(crate) struct Placement {
    pub(crate) group: GroupId,
    pub(crate) cursors: Vec<CursorRef>,
    pub(crate) from: From,
    /// The next offset of each cursor, once it is known.
    pub(crate) next: Vec<Offset>,
    pub(crate) then: AfterPlacement,
}

#[derive(Debug)]
pub(crate) enum AfterPlacement {
    Join { to: ReplyTo, subscribe: Subscribe },
    Answer { to: ReplyTo },
}

impl Pending {
    /// Who waits for an answer that depends on this.
    pub(crate) fn into_askers(self) -> Vec<ReplyTo> {
        match self {
            Pending::Publish { to, .. }
            | Pending::Delay(Delayed { to, .. })
            | Pending::TopicWrite { to, .. }
            | Pending::TopicDelete { to, .. }
            | Pending::GroupDelete { to, .. }
            | Pending::Write { to }
            | Pending::Placement(Placement {
                then: AfterPlacement::Join { to, .. } | AfterPlacement::Answer { to },
                ..
            }) => vec![to],
            Pending::Flush { confirms, .. } => confirms,
            Pending::MoveDue { .. }
            | Pending::Row
            | Pending::Trim { .. }
            | Pending::Read { .. }
            | Pending::Refetch { .. }
            | Pending::FindStart { .. }
            | Pending::ScanDue
            | Pending::ReadTopic { .. }
            | Pending::Compact => Vec::new(),
        }
    }
}
