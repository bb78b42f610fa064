//! Everything the loop asks the world to do: a closed list.

use std::sync::Arc;

use millrace_model::{Op, OsFault, OsMessage, Principal};

use crate::input::{By, CapabilityId, ConnId, DeliveryId, Receipt, Token};
use crate::note::Note;
use crate::trace::TraceRecord;

#[derive(Clone, Debug)]
pub enum Effect {
    /// `postMessage`: put it into the actor's mailbox. The engine counts what is there, so there is room.
    /// Ends with [`crate::Input::Done`].
    Post {
        to: CapabilityId,
        delivery: DeliveryId,
        message: Arc<OsMessage>,
        /// For a request of a client: who that is.
        by: By,
        /// A durable timer sent this event, and its row stays until [`crate::Input::Done`]: so that must not be said
        /// before the actor has finished with the event. An actor that cannot tell at once says
        /// [`crate::Input::Handed`] first.
        owed: bool,
    },
    /// The outcome of a request this actor emitted with `wait`: for whoever waits in it, past the mailbox. No
    /// [`crate::Input::Done`] follows.
    Outcome { to: CapabilityId, message: Arc<OsMessage> },
    /// A terminal outcome for a client: the only thing that ever leaves to one.
    Answer { conn: ConnId, message: OsMessage },
    /// `count` messages of this connection no longer count against its bound: it may send as many more.
    Release { conn: ConnId, count: u32 },
    /// Make it durable, then say [`crate::Input::Committed`].
    Commit { token: Token, ops: Vec<Op> },
    /// A timer is about to send `message` on behalf of whoever set it: may they still? Answered by
    /// [`crate::Input::Vouched`]. Until then it is neither sent nor forgotten.
    Vouch { timer: u64, by: Principal, message: OsMessage },
    /// What became of a bus event.
    Settle { receipt: Receipt, settled: Settled },
    /// The mailbox of a capability that was to go is empty: let it go.
    Retired { capability: CapabilityId },
    /// A record of the trace, if they were asked for.
    Trace(TraceRecord),
    /// Something worth writing down happened.
    Note(Note),
    /// Nothing is pending any more: the process may end.
    Stopped,
}

/// What became of a bus event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Acknowledge it.
    Processed,
    /// It was begun and failed, whatever the code says: that was an attempt.
    Failed(OsFault),
    /// The capability takes nothing just now, or took nothing any more before this one's turn came. Nobody has seen it,
    /// so it was no attempt.
    Unseen,
}
