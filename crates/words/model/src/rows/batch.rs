//! The batch: everything that one decision makes durable together, as pure data.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clocks::time::Timestamp;
use crate::handling::claim::{Claim, Claimed};
use crate::handling::state::{Reconcile, StateCommit};
use crate::log::event::NewEvent;
use crate::log::id::EventId;
use crate::log::stream::{Offset, Partition, Stream, TopicKey};
use crate::rows::record::DueRow;

/// Largest batch that every store must accept. Chosen so that a batch still fits one record of an object store or a
/// document database.
pub const BATCH_BYTES_MAX: usize = 12 << 20;

/// Largest event (see [`crate::EventBody::bytes`]) that sessions and handlers may send. Rows about an event that are
/// written later, such as its dead letter, copy the event and must still fit into a batch.
pub const EVENT_BYTES_MAX: usize = BATCH_BYTES_MAX - (64 << 10);

/// How durable a batch is when its commit is confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Promises nothing once the process has ended. A store may do more, and must not harm other batches by doing less.
    Memory,
    /// Handed to the operating system: survives the end of the process, not a power failure.
    Os,
    /// Written to disk.
    #[default]
    Fsync,
    /// On more than one machine.
    Replicated,
}

impl Durability {
    /// All levels, from the weakest to the strongest.
    pub const ALL: [Durability; 4] =
        [Durability::Memory, Durability::Os, Durability::Fsync, Durability::Replicated];

    pub fn parse(text: &str) -> Option<Durability> {
        Durability::ALL.into_iter().find(|level| level.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Memory => "memory",
            Durability::Os => "os",
            Durability::Fsync => "fsync",
            Durability::Replicated => "replicated",
        }
    }
}

/// A transaction: all of it becomes durable, or a check fails and none of it does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Drawn at random by the shell: ids are derived from it, and a store that lost an answer finds its own record
    /// again by it.
    pub nonce: u64,
    pub now: Timestamp,
    /// The durability that this batch needs at least. Batches merged into one commit get the strongest one among them.
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
    /// The id is taken: an append with it would be a duplicate and store nothing.
    IdTaken(TakenId),
    /// The topic exists and has this incarnation number (see [`crate::TopicRow::incarnation`]). Once this does not
    /// hold, it never holds again.
    Incarnation {
        topic: TopicKey,
        incarnation: u64,
    },
}

/// An id that an event of the topic must have already.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenId {
    pub topic: TopicKey,
    pub id: EventId,
    /// See [`Append::dedupe_window_ms`].
    pub dedupe_window_ms: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Symbolic: the commit assigns offset, time and id.
    Append(Append),
    /// Symbolic: the commit determines whether the event's id is taken.
    Delay(Delay),
    /// An existing row of [`Space::Topics`] keeps its incarnation: see [`Done::incarnation_kept`].
    Put {
        space: Space,
        key: String,
        value: Bytes,
    },
    /// Like `Put`, but leaves an existing row as it is.
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
    /// Symbolic: the commit determines what changes.
    Reconcile(Reconcile),
    /// Remove all events of the stream below `start`. The start never moves back. Readers see it at once, space is
    /// freed later.
    Trim {
        stream: Stream,
        start: Offset,
    },
    /// Remove single events. From now on any offset below `compacted_to` may be missing without being damage.
    /// `compacted_to` never moves back, and offsets at or above it stay whatever the list says.
    Remove {
        stream: Stream,
        /// In ascending order.
        offsets: Vec<Offset>,
        compacted_to: Offset,
    },
    /// Remove every stream of the topic. The caller deletes its rows in the small tables.
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

/// A delayed event, which is appended when it is due. Its row waits in [`Space::Due`], unless its id is taken: by a
/// stored event of the topic within the window, or by an event that waits already. From now on a row in
/// [`Space::DueIds`] reserves the id.
///
/// The topic's incarnation is the one that exists inside the commit. If the topic may be missing, the batch also writes
/// the topic's row.
#[derive(Clone, Debug, PartialEq)]
pub struct Delay {
    pub topic: TopicKey,
    pub id: EventId,
    /// 0 for an event that did not bring its id: nothing is looked up and nothing is taken.
    pub dedupe_window_ms: u64,
    pub due: Timestamp,
    /// The row's key in [`Space::Due`].
    pub key: String,
    /// [`DueRow::incarnation`] is filled in by the commit.
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
    /// Events whose deliveries have failed, or that have to wait: see [`crate::AttemptRow`].
    Attempts,
    /// Delayed events, in the order they are due.
    Due,
    /// Ids of delayed events, so that they are stored once.
    DueIds,
    /// Rows that do not deserve a table of their own.
    Kv,
    /// Events that do not have the default priority, the urgent first. Written by the store itself when it appends.
    OffPriority,
    /// Registered durable handlers.
    Handlers,
    /// How far each handler has read in each lane (priority) of each stream.
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
    /// Schemas of the types of entities and relations.
    Schemas,
}

impl Space {
    pub const ALL: [Space; 19] = [
        Space::Topics,
        Space::Groups,
        Space::Cursors,
        Space::Attempts,
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
            Space::Attempts => "tries",
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

/// The results of a batch's symbolic operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Each append and each delay, in the order of the batch's operations.
    pub appended: Vec<Appended>,
    /// The events that the batch's claims took, in the order of the operations, each in the order they should be
    /// handled.
    pub claimed: Vec<Claimed>,
    /// Whether some claim may have left events that could be claimed at once: it reached its own limits, or the bound
    /// on how much one claim reads.
    pub more: bool,
    /// The commit of state, if anything changed.
    pub state: Option<StateCommit>,
    /// Whether a `Put` to [`Space::Topics`] replaced a row of another incarnation. The row then has the new settings
    /// but keeps its incarnation number, because delayed events may wait for it.
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
    /// The value of the row that the check read, if it read one.
    pub found: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// The partition of the event; for a duplicate that of the first event, which may be another one.
    pub partition: Partition,
    pub offset: Offset,
    pub ts: Timestamp,
    pub id: EventId,
    pub duplicate: bool,
    /// When the event of this id will be appended, if it is delayed. Until then it has no place: `offset` is zero and
    /// `ts` is the time of the batch.
    pub due: Option<Timestamp>,
}

impl Batch {
    /// Returns an upper estimate of the batch's size, for bounds.
    pub fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }
}

impl Op {
    /// Returns the operation's part of [`Batch::bytes`].
    pub fn bytes(&self) -> usize {
        const FIXED: usize = 64;
        match self {
            Op::Append(append) => append.event.body.bytes(),
            Op::Delay(delay) => 2 * FIXED + delay.key.len() + delay.row.bytes() + delay.topic.as_str().len(),
            Op::Put { key, value, .. } | Op::PutNew { key, value, .. } => FIXED + key.len() + value.len(),
            // A claim writes rows only: its events are read.
            Op::Claim(claim) => claim.rows_max() * (4 * FIXED + claim.topic.as_str().len()),
            Op::Reconcile(reconcile) => reconcile.bytes(),
            Op::Delete { key, .. } => FIXED + key.len(),
            Op::Remove { offsets, .. } => FIXED + size_of_val(offsets.as_slice()),
            Op::Trim { .. } | Op::Drop { .. } => FIXED,
        }
    }
}
