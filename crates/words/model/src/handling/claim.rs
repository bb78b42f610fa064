//! Claims: how a durable handler takes single events. The request, the answer, and the proof that a lease is held.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clocks::time::Timestamp;
use crate::handling::handler_record::ClaimRow;
use crate::log::event::{Event, PRIORITY_DEFAULT, Priority};
use crate::log::stream::{Offset, Stream, TopicKey};
use crate::rows::batch::{Check, Op, Space};
use crate::rows::record::keys;
use crate::topics::name::{HandlerId, SessionId};

/// Priorities outside of this range count as its nearest end when events are put in order, so that the number of
/// lanes a claim may have to look at is bounded.
pub const LANE_PRIORITY_MAX: i32 = 1000;

/// Returns the lane in which events of this priority wait: `None` for the plain lane, which reads the stream itself in
/// order.
pub fn lane_of(priority: Priority) -> Option<u32> {
    (priority != PRIORITY_DEFAULT).then(|| priority.0.clamp(0, LANE_PRIORITY_MAX) as u32)
}

/// The order in which a handler takes events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandlerOrder {
    /// Higher priority first, then older. Any number of events at once.
    #[default]
    Priority,
    /// Events of one key one at a time and in the order of the log, whatever their priority: an event is taken when
    /// every earlier event of its key has ended for the handler. Events without a key wait for no other event.
    Key,
}

/// The key of an event for [`HandlerOrder::Key`]: a hash, so that the row of a claim stays short. Two keys with the
/// same hash wait for one another as if they were one.
///
/// The rows of claims store this hash, so its function must never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderKey(u64);

impl OrderKey {
    /// The value of events without a key.
    pub const NONE: OrderKey = OrderKey(0);

    /// Returns the FNV-1a hash of the key's bytes.
    pub fn of(key: Option<&str>) -> OrderKey {
        let Some(key) = key else { return OrderKey::NONE };
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        OrderKey(hash.max(1))
    }
}

/// How many events behind their keys (see the glossary in ARCHITECTURE.md) a claim in [`HandlerOrder::Key`] records at
/// most for each event it asks for.
pub const BEHIND_PER_EVENT_MAX: usize = 16;

/// Takes up to `events_max` events of the topic for the handler: events that wait for another attempt and are due,
/// events whose lease has expired, and events that the handler has never seen; in the order that `order` says.
///
/// A symbolic operation: the commit finds the events. A claim sees only events of earlier commits, but every row that
/// operations before it in the batch wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace and event type.
    pub topic: TopicKey,
    pub handler: HandlerId,
    pub session: SessionId,
    pub events_max: usize,
    /// The claim ends before the event that would exceed this; one event is taken however large it is.
    pub bytes_max: usize,
    /// The lease ends at this time: from then on others may take the event.
    pub lease_until: Timestamp,
    /// How many of the events the session will start as soon as the claim is durable. The first ones get
    /// [`RunMark::Claimed`] in the claim's own commit, except events under [`Suspicion::Likely`].
    pub start_max: usize,
    pub order: HandlerOrder,
}

impl Claim {
    /// How many rows of claims this claim writes at most.
    pub(crate) fn rows_max(&self) -> usize {
        match self.order {
            HandlerOrder::Priority => self.events_max,
            HandlerOrder::Key => self.events_max.saturating_mul(1 + BEHIND_PER_EVENT_MAX),
        }
    }
}

/// An event that a claim took.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub ticket: Ticket,
    pub event: Arc<Event>,
}

/// The proof that a lease is held: the claim's row exactly as it is stored. Every change of the row (another claim, a
/// renewal, a step) invalidates all older tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub handler: HandlerId,
    pub stream: Stream,
    pub offset: Offset,
    pub row: ClaimRow,
}

impl Ticket {
    pub fn key(&self) -> String {
        keys::claim(&self.handler, self.row.due, &self.stream, self.offset)
    }

    /// Returns a check that holds only as long as nobody else took the event and the claim's row did not change.
    pub fn check(&self) -> Check {
        Check::Equals { space: Space::Claims, key: self.key(), value: self.row.encode() }
    }

    /// Whether the lease is held at `now`. The lease ends exactly when others may take the event.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.row.state == ClaimState::Leased && now < self.row.due
    }

    pub fn delete(&self) -> Op {
        Op::Delete { space: Space::Claims, key: self.key() }
    }

    /// [`Ticket::check`] and [`Ticket::delete`], which mostly go together.
    pub fn end(&self) -> (Check, Op) {
        let key = self.key();
        let delete = Op::Delete { space: Space::Claims, key: key.clone() };
        (Check::Equals { space: Space::Claims, key, value: self.row.encode() }, delete)
    }

    pub fn put(&self) -> Op {
        Op::Put { space: Space::Claims, key: self.key(), value: self.row.encode() }
    }
}

/// How far the run of a leased claim is, as its row says. A lease that ends under `Unknown` or `Claimed` costs no
/// attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunMark {
    /// The event may be queued, or its run is young. Rows of versions that wrote no mark read as this, too: such a
    /// version may have counted an attempt for every event that a dead session had only prefetched.
    #[default]
    Unknown,
    /// The session meant to start the run as soon as the claim was durable. Whether it did is not known: a lease that
    /// ends now costs no attempt, but the event may have killed its process.
    Claimed,
    /// The run had started, or was about to, when this was written: see `suspects.rs` of the engine `claims`.
    Started,
    /// The run was still going on when most of its lease was over. If the lease ends now, the handler was slow.
    Long,
}

impl RunMark {
    pub(crate) fn is_unknown(&self) -> bool {
        *self == RunMark::Unknown
    }
}

/// Whether an event may have killed the process that ran it. Kept in the claim's row until a run of the event returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suspicion {
    #[default]
    None,
    /// A lease ended, and no row says whether a run had started. Before the event runs again, its [`RunMark`] must be
    /// durable.
    Possible,
    /// A lease ended during a run. The event also starts alone in its session, so that a crash costs no other event an
    /// attempt.
    Likely,
}

impl Suspicion {
    pub(crate) fn is_none(&self) -> bool {
        *self == Suspicion::None
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimState {
    /// A session holds the event until `due`.
    #[default]
    Leased,
    /// The event waits until `due` for its next attempt.
    Waiting,
}

#[cfg(test)]
mod tests {
    use super::OrderKey;

    #[test]
    fn the_hash_of_a_key_never_changes() {
        let json = |key| serde_json::to_string(&OrderKey::of(key)).unwrap();
        assert_eq!(json(None), "0");
        assert_eq!(json(Some("")), 0xcbf2_9ce4_8422_2325_u64.to_string());
        assert_eq!(json(Some("foobar")), 0x8594_4171_f739_67e8_u64.to_string());
    }
}
