//! Everything the loop asks the world to do: a closed list.

use std::sync::Arc;

use millrace_model::{Op, OsFault, OsMessage};

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
    /// A bus event was processed (`Ok`: acknowledge it) or not (`Err`: give it back).
    Settle { receipt: Receipt, result: Result<(), OsFault> },
    /// The mailbox of a capability that was to go is empty: let it go.
    Retired { capability: CapabilityId },
    /// A record of the trace, if they were asked for.
    Trace(TraceRecord),
    /// Something worth writing down happened.
    Note(Note),
    /// Nothing is pending any more: the process may end.
    Stopped,
}
