//! The batch: everything one decision wants to become durable together, as pure data.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Claimed};
use crate::event::NewEvent;
use crate::id::EventId;
use crate::record::DueRow;
use crate::state::{Reconcile, StateCommit};
use crate::stream::{Offset, Partition, Stream, TopicKey};
use crate::time::Timestamp;

/// Largest batch any store must take. Chosen so that a batch still fits one record of an object store or a
/// document database.
pub const BATCH_BYTES_MAX: usize = 12 << 20;

/// Largest event (see [`crate::EventBody::bytes`]) that sessions and handlers may send. What is written about an event
/// later, its dead letter above all, must fit a batch together with all of it.
pub const EVENT_BYTES_MAX: usize = BATCH_BYTES_MAX - (64 << 10);

/// What has happened to a batch before its commit is confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Promises nothing once the process has ended. A store may do more, and must not harm other batches by doing less.
    Memory,
    /// The operating system has it: survives the process, not the power.
    Os,
    /// It is on disk.
    #[default]
    Fsync,
}

impl Durability {
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Os => "os",
            Durability::Fsync => "fsync",
        }
    }
}

/// All of it becomes durable, or a check fails and none of it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Drawn at random by the runtime: ids are derived from it, and a store that lost an answer finds its own
    /// record again by it.
    pub nonce: u64,
    pub now: Timestamp,
    /// The least this batch needs. Batches merged into one commit get the strongest of their wishes.
    pub durability: Durability,
    pub checks: Vec<Check>,
    pub ops: Vec<Op>,
}

/// Evaluated inside the transaction, before the batch writes anything.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    Absent {
        space: Space,
        key: String,
    },
    Present {
        space: Space,
        key: String,
    },
    Equals {
        space: Space,
        key: String,
        value: Bytes,
    },
    /// The id is taken, as an append of it would find: it would store nothing.
    IdTaken(TakenId),
    /// The topic stands, and is the one of its name that was made with this number (see [`crate::TopicRow::made`]). Once
    /// this does not hold, it never holds again.
    Incarnation {
        topic: TopicKey,
        made: u64,
    },
}

/// An id that an event of a topic is supposed to have already.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenId {
    pub topic: TopicKey,
    pub id: EventId,
    /// See [`Append::dedupe_window_ms`].
    pub dedupe_window_ms: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Symbolic: the commit gives it offset, time and id.
    Append(Append),
    /// Symbolic: the commit finds out whether its id is taken.
    Delay(Delay),
    /// A row of [`Space::Topics`] that stands keeps its incarnation: see [`Done::incarnation_kept`].
    Put {
        space: Space,
        key: String,
        value: Bytes,
    },
    /// Leaves a row that is already there as it is.
    PutNew {
        space: Space,
        key: String,
        value: Bytes,
    },
    Delete {
        space: Space,
        key: String,
    },
    /// Symbolic: the commit finds the events.
    Claim(Claim),
    /// Symbolic: the commit finds out what changes.
    Reconcile(Reconcile),
    /// Forget all events of the stream below `start`. Never moves back. Readers see it at once, space is freed later.
    Trim {
        stream: Stream,
        start: Offset,
    },
    /// Forget single events. From now on any offset below `compacted_to` may be missing without being damage; it
    /// never moves back, and offsets at or above it stay whatever the list says.
    Remove {
        stream: Stream,
        /// Rising.
        offsets: Vec<Offset>,
        compacted_to: Offset,
    },
    /// Forget every stream of the topic. Its rows in the small tables are the caller's to delete.
    Drop {
        topic: TopicKey,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    pub stream: Stream,
    pub event: NewEvent,
    /// For an event that brings its id: how far back the same id on the same topic makes it a duplicate. An id that a
    /// delayed event of the topic holds is taken as well. 0: nothing is looked up.
    pub dedupe_window_ms: u64,
}

/// An event that gets its place when it is due. Its row waits in [`Space::Due`], unless its id is taken: by a stored
/// event of the topic within the window, or by one that waits already. A row in [`Space::DueIds`] takes it from now on.
///
/// The topic is the one that stands inside the commit. Whoever delays an event writes the topic's row in the same batch if
/// the topic may be missing.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    pub topic: TopicKey,
    pub id: EventId,
    /// 0 for an event that did not bring its id: nothing is looked up and nothing is taken.
    pub dedupe_window_ms: u64,
    pub due: Timestamp,
    /// In [`Space::Due`].
    pub key: String,
    /// [`DueRow::made`] is filled in by the commit.
    pub row: Box<DueRow>,
}

/// The small ordered tables beside the event log. Keys are readable text (see [`crate::keys`]), values JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Topic settings.
    Topics,
    /// Group settings.
    Groups,
    /// How far each group is in each stream.
    Cursors,
    /// Deliveries that are not the plain first one.
    Tries,
    /// Delayed events, in the order they are due.
    Due,
    /// Ids of delayed events, so that they are stored once.
    DueIds,
    /// For the owner of the store: whatever does not deserve a table.
    Kv,
    /// Events that are not of the plain priority, the urgent first. Written by the store itself when it appends.
    OffPriority,
    /// Durable handlers that have been seen.
    Handlers,
    /// How far each handler has looked in each lane of each stream.
    Lanes,
    /// Open claims, in the order they are due.
    Claims,
    /// How events ended, by event and handler.
    Finished,
    /// Events that handlers gave up on.
    DeadLetters,
    Sessions,
    Schedules,
    /// The newest state of each identity.
    Heads,
    /// Every version of every identity.
    History,
    /// Commits of state: when, why, what changed.
    StateCommits,
    /// What the types of entities and relations look like.
    Schemas,
}

impl Space {
    pub const ALL: [Space; 19] = [
        Space::Topics,
        Space::Groups,
        Space::Cursors,
        Space::Tries,
        Space::Due,
        Space::DueIds,
        Space::Kv,
        Space::OffPriority,
        Space::Handlers,
        Space::Lanes,
        Space::Claims,
        Space::Finished,
        Space::DeadLetters,
        Space::Sessions,
        Space::Schedules,
        Space::Heads,
        Space::History,
        Space::StateCommits,
        Space::Schemas,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Space::Topics => "topics",
            Space::Groups => "groups",
            Space::Cursors => "cursors",
            Space::Tries => "tries",
            Space::Due => "due",
            Space::DueIds => "due_ids",
            Space::Kv => "kv",
            Space::OffPriority => "off_priority",
            Space::Handlers => "handlers",
            Space::Lanes => "lanes",
            Space::Claims => "claims",
            Space::Finished => "finished",
            Space::DeadLetters => "dead_letters",
            Space::Sessions => "sessions",
            Space::Schedules => "schedules",
            Space::Heads => "heads",
            Space::History => "history",
            Space::StateCommits => "state_commits",
            Space::Schemas => "schemas",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done(Done),
    Refused(Refusal),
}

/// What the symbolic operations of a batch became.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Each append and each delay, in the order of the batch's operations.
    pub appended: Vec<Appended>,
    /// The events its claims took, in the order of the operations, each in the order they should be handled.
    pub claimed: Vec<Claimed>,
    /// Some claim may have left events that could be taken at once: it met its own limits, or the bound on how much
    /// one claim looks at.
    pub more: bool,
    /// The commit of state, if anything changed.
    pub state: Option<StateCommit>,
    /// A row of [`Space::Topics`] was put over one of another incarnation. The row has the new settings and has kept the
    /// number of the incarnation, because delayed events may wait for it.
    pub incarnation_kept: bool,
}

impl From<Vec<Appended>> for Done {
    fn from(appended: Vec<Appended>) -> Done {
        Done { appended, ..Done::default() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Index into the batch's checks.
    pub check: usize,
    /// What stands in the row the check looked at, if it looked at one.
    pub found: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// Where it is: for a duplicate the partition of the first, which may be another one.
    pub partition: Partition,
    pub offset: Offset,
    pub ts: Timestamp,
    pub id: EventId,
    pub duplicate: bool,
    /// The event of this id waits and will be appended then. Until that it has no place: `offset` is zero and `ts` is
    /// the time of the batch.
    pub due: Option<Timestamp>,
}

impl Batch {
    /// An upper estimate of what the batch holds, for bounds.
    pub fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }
}

impl Op {
    /// Its part of [`Batch::bytes`].
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 64;
        match self {
            Op::Append(append) => append.event.body.bytes(),
            Op::Delay(delay) => 2 * FIXED + delay.key.len() + delay.row.bytes() + delay.topic.as_str().len(),
            Op::Put { key, value, .. } | Op::PutNew { key, value, .. } => FIXED + key.len() + value.len(),
            // Its rows: events are read, not written.
            Op::Claim(claim) => claim.rows_max() * (4 * FIXED + claim.topic.as_str().len()),
            Op::Reconcile(reconcile) => reconcile.bytes(),
            Op::Delete { key, .. } => FIXED + key.len(),
            Op::Remove { offsets, .. } => FIXED + size_of_val(offsets.as_slice()),
            Op::Trim { .. } | Op::Drop { .. } => FIXED,
        }
    }
}
