//! Claims: how a durable handler takes single events. The request, the answer, and the proof that a lease is held.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{Check, Op, Space};
use crate::event::{Event, PRIORITY_DEFAULT, Priority};
use crate::handler_record::ClaimRow;
use crate::name::{HandlerId, SessionId};
use crate::record::keys;
use crate::stream::{Offset, Stream, TopicKey};
use crate::time::Timestamp;

/// Priorities outside of this range count as its nearest end when events are put in order, so that the number of
/// lanes a claim may have to look at is bounded.
pub const LANE_PRIORITY_MAX: i32 = 1000;

/// Which lane an event of this priority waits in: `None` for the plain lane, which walks the stream itself.
pub fn lane_of(priority: Priority) -> Option<u32> {
    (priority != PRIORITY_DEFAULT).then(|| priority.0.clamp(0, LANE_PRIORITY_MAX) as u32)
}

/// Take up to `events_max` events of the topic for the handler: those that wait for another try and whose time has
/// come, those whose lease has run out, and those it has never seen; higher priority first, then older.
///
/// A symbolic operation: which events these are is found inside the commit. It sees events of earlier commits only,
/// but every row that operations before it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace and event type.
    pub topic: TopicKey,
    pub handler: HandlerId,
    pub session: SessionId,
    pub events_max: usize,
    /// Ends the claim before the event that would pass it; one event is taken however large.
    pub bytes_max: usize,
    /// From when on others may take the event over. The first moment that is too late.
    pub lease_until: Timestamp,
}

/// An event that was taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub ticket: Ticket,
    pub event: Arc<Event>,
}

/// What proves that a lease is held: the claim's row exactly as it stands. Every change of the row (another claim,
/// a renewal, a step) makes all older tickets worthless.
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

    /// Holds only as long as nobody else took the event and nothing of the claim changed.
    pub fn check(&self) -> Check {
        Check::Equals { space: Space::Claims, key: self.key(), value: self.row.encode() }
    }

    /// The lease ends exactly when others may take over.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimState {
    /// Somebody works on it until `due`.
    #[default]
    Leased,
    /// It waits until `due` for its next try.
    Waiting,
}
