//! Effects under way: one entry for each effect whose end is reported later.

use std::sync::Arc;

use millrace_model::{
    DueBy, DueEvent, Durability, EventBody, Group, Offset, Stream, Timestamp, TopicKey, TopicPatch,
};

use crate::groups::group::{CursorRef, GroupId};
use crate::interface::input::{From, Subscribe};
use crate::interface::reply::ReplyTo;
use crate::topics::schema::Compared;
use crate::topics::schema_change::Resend;
use crate::topics::topic::TopicId;

/// An append under way: with the offset that the commit reports, it becomes an event.
#[derive(Debug)]
pub(crate) struct Appending {
    pub(crate) topic: TopicId,
    pub(crate) stream: Stream,
    pub(crate) body: Arc<EventBody>,
}

/// A delayed event that is being written to the table `due`.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) to: ReplyTo,
    pub(crate) topic: TopicKey,
    pub(crate) durability: Durability,
    pub(crate) by: DueBy,
    /// When the event is due, by the clock that `by` names.
    pub(crate) waits_until: Timestamp,
    /// Where the event will be appended.
    pub(crate) appending: Appending,
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
    /// A publish with events that do not match the schema and are accepted only if their ids are taken: see [`Resend`].
    Resend {
        resend: Resend,
        then: Box<Pending>,
    },
    /// A cursor's row, with the dead letters that go with it.
    Flush {
        cursor: CursorRef,
        committed: Offset,
        /// When `committed` was first written.
        since: Option<Timestamp>,
        confirms: Vec<ReplyTo>,
        appends: Vec<Appending>,
    },
    /// A group gets its first position, or a new one.
    Placement(Placement),
    TopicWrite {
        to: ReplyTo,
        topic: TopicKey,
        created: bool,
        /// The events that a new schema was compared with.
        checked: Compared,
    },
    /// Retained events are compared with the schema that a change would set.
    SchemaCheck {
        to: ReplyTo,
        topic: TopicKey,
        id: TopicId,
        /// Kept instead of the resulting configuration, because other changes may be applied first.
        wanted: TopicPatch,
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
    /// Rows of another engine: see `rows.rs`.
    Write {
        to: ReplyTo,
    },
    MoveDue {
        by: DueBy,
        appends: Vec<Appending>,
    },
    /// A due event of a topic that this engine does not know.
    MoveAlone {
        by: DueBy,
        event: Box<DueEvent>,
    },
    /// Rows that no request waits for.
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
    ScanDue(DueBy),
    ReadTopic {
        topic: TopicKey,
    },
    /// A read or a removal of the compaction pass under way.
    Compact,
}

/// A new position for a group, and what follows once it is durable.
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
    /// Returns the events that this puts into topics, now or when they are due.
    pub(crate) fn appends(&self) -> &[Appending] {
        match self {
            Pending::Delay(delayed) => std::slice::from_ref(&delayed.appending),
            Pending::Resend { then, .. } => then.appends(),
            Pending::Publish { appends, .. }
            | Pending::MoveDue { appends, .. }
            | Pending::Flush { appends, .. } => appends,
            _ => &[],
        }
    }

    /// Returns the requests whose answers depend on this.
    pub(crate) fn into_askers(self) -> Vec<ReplyTo> {
        match self {
            Pending::Publish { to, .. }
            | Pending::Delay(Delayed { to, .. })
            | Pending::TopicWrite { to, .. }
            | Pending::SchemaCheck { to, .. }
            | Pending::TopicDelete { to, .. }
            | Pending::GroupDelete { to, .. }
            | Pending::Write { to }
            | Pending::Placement(Placement {
                then: AfterPlacement::Join { to, .. } | AfterPlacement::Answer { to },
                ..
            }) => vec![to],
            Pending::Flush { confirms, .. } => confirms,
            Pending::Resend { then, .. } => then.into_askers(),
            Pending::MoveDue { .. }
            | Pending::MoveAlone { .. }
            | Pending::Row
            | Pending::Trim { .. }
            | Pending::Read { .. }
            | Pending::Refetch { .. }
            | Pending::FindStart { .. }
            | Pending::ScanDue(_)
            | Pending::ReadTopic { .. }
            | Pending::Compact => Vec::new(),
        }
    }
}
