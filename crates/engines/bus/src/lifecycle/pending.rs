//! Effects under way: one entry for each effect whose end is reported later.

use std::sync::Arc;

use millrace_model::{
    DueBy, DueEvent, Durability, EventBody, Group, Offset, Partition, Stream, Timestamp, TopicKey, TopicPatch,
};

use crate::groups::group::{CursorRef, GroupId};
use crate::interface::input::{From, Subscribe};
use crate::interface::reply::ReplyTo;
use crate::topics::schema::Compared;
use crate::topics::schema_change::DuplicateOnly;
use crate::topics::topic::TopicId;

/// An append under way: with the offset that the commit reports, it becomes an event.
#[derive(Debug)]
pub(crate) struct PendingAppend {
    pub(crate) topic: TopicId,
    pub(crate) stream: Stream,
    pub(crate) body: Arc<EventBody>,
}

/// A delayed event that is being written to the table `due`.
#[derive(Debug)]
pub(crate) struct PendingDelay {
    pub(crate) to: ReplyTo,
    pub(crate) topic: TopicKey,
    pub(crate) durability: Durability,
    pub(crate) by: DueBy,
    /// When the event is due, by the clock that `by` names.
    pub(crate) waits_until: Timestamp,
    /// Where the event will be appended.
    pub(crate) appending: PendingAppend,
}

#[derive(Debug)]
pub(crate) enum PendingEffect {
    Publish {
        to: ReplyTo,
        topic: TopicKey,
        single: bool,
        durability: Durability,
        appends: Vec<PendingAppend>,
    },
    Delay(PendingDelay),
    /// A publish with events that do not match the schema and are accepted only if their ids are taken: see
    /// [`DuplicateOnly`].
    DuplicateOnly {
        duplicate_only: DuplicateOnly,
        then: Box<PendingEffect>,
    },
    /// A cursor's row, with the dead letters that go with it.
    Flush {
        cursor: CursorRef,
        committed: Offset,
        /// When `committed` was first written.
        since: Option<Timestamp>,
        confirms: Vec<ReplyTo>,
        appends: Vec<PendingAppend>,
    },
    /// A group gets its first position, or a new one.
    Seek(PendingSeek),
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
    LettersRemove {
        to: ReplyTo,
        topic: TopicKey,
        partition: Partition,
    },
    GroupPause {
        to: ReplyTo,
        topic: TopicKey,
        group: Group,
        paused: bool,
    },
    MoveDue {
        by: DueBy,
        appends: Vec<PendingAppend>,
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
pub(crate) struct PendingSeek {
    pub(crate) group: GroupId,
    pub(crate) cursors: Vec<CursorRef>,
    pub(crate) from: From,
    /// The next offset of each cursor, once it is known.
    pub(crate) next: Vec<Offset>,
    pub(crate) then: AfterSeek,
}

#[derive(Debug)]
pub(crate) enum AfterSeek {
    Join { to: ReplyTo, subscribe: Subscribe },
    Answer { to: ReplyTo },
}

impl PendingEffect {
    /// Returns the events that this puts into topics, now or when they are due.
    pub(crate) fn appends(&self) -> &[PendingAppend] {
        match self {
            PendingEffect::Delay(delayed) => std::slice::from_ref(&delayed.appending),
            PendingEffect::DuplicateOnly { then, .. } => then.appends(),
            PendingEffect::Publish { appends, .. }
            | PendingEffect::MoveDue { appends, .. }
            | PendingEffect::Flush { appends, .. } => appends,
            _ => &[],
        }
    }

    /// Returns the requests whose answers depend on this.
    pub(crate) fn into_requesters(self) -> Vec<ReplyTo> {
        match self {
            PendingEffect::Publish { to, .. }
            | PendingEffect::Delay(PendingDelay { to, .. })
            | PendingEffect::TopicWrite { to, .. }
            | PendingEffect::SchemaCheck { to, .. }
            | PendingEffect::TopicDelete { to, .. }
            | PendingEffect::GroupDelete { to, .. }
            | PendingEffect::GroupPause { to, .. }
            | PendingEffect::LettersRemove { to, .. }
            | PendingEffect::Seek(PendingSeek {
                then: AfterSeek::Join { to, .. } | AfterSeek::Answer { to },
                ..
            }) => vec![to],
            PendingEffect::Flush { confirms, .. } => confirms,
            PendingEffect::DuplicateOnly { then, .. } => then.into_requesters(),
            PendingEffect::MoveDue { .. }
            | PendingEffect::MoveAlone { .. }
            | PendingEffect::Row
            | PendingEffect::Trim { .. }
            | PendingEffect::Read { .. }
            | PendingEffect::Refetch { .. }
            | PendingEffect::FindStart { .. }
            | PendingEffect::ScanDue(_)
            | PendingEffect::ReadTopic { .. }
            | PendingEffect::Compact => Vec::new(),
        }
    }
}
