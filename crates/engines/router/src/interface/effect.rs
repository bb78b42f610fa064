//! Everything the loop asks the shell to do: a closed list.

use std::sync::Arc;

use millrace_model::{Op, OsFault, OsMessage, Principal, Requester};

use crate::interface::input::{CapabilityId, CommitToken, ConnId, DeliveryId, Receipt};
use crate::interface::note::Note;
use crate::reports::trace::TraceRecord;

#[derive(Clone, Debug)]
pub enum Effect {
    /// `postMessage`: put the message into the actor's mailbox. There is room: the engine counts the messages there.
    /// The shell reports the end of the delivery by [`crate::Input::Done`].
    Post {
        to: CapabilityId,
        delivery: DeliveryId,
        message: Arc<OsMessage>,
        /// For a client's request: the identity of that client.
        by: Requester,
        /// A durable timer sent this event, and its row stays in the store until [`crate::Input::Done`]: the shell must
        /// not report that before the actor has finished with the event. For an actor that goes on to its next message
        /// first, the shell reports [`crate::Input::Handed`].
        owed: bool,
    },
    /// The outcome of a request that this actor emitted with `wait`: it bypasses the mailbox and goes to the code in
    /// the actor that waits for it. No [`crate::Input::Done`] follows.
    Outcome { to: CapabilityId, message: Arc<OsMessage> },
    /// The final outcome of a client's request: the only kind of message that is ever sent to a client.
    Answer { conn: ConnId, message: OsMessage },
    /// `count` messages of this connection no longer count against its limit: it may send that many more.
    Release { conn: ConnId, count: u32 },
    /// Make `ops` durable, then report [`crate::Input::Committed`].
    Commit { token: CommitToken, ops: Vec<Op> },
    /// A timer is about to send `message` on behalf of `by`, the principal that set it: is that still permitted? The
    /// shell answers by [`crate::Input::SenderChecked`]. Until then the timer neither sends the message nor is dropped.
    CheckSender { timer: u64, by: Principal, message: OsMessage },
    /// Tells the bus what became of an event it handed in ([`crate::Input::BusEvent`]).
    Settle { receipt: Receipt, settled: Settled },
    /// The mailbox of a capability that is leaving is empty: the shell may end the capability.
    Retired { capability: CapabilityId },
    /// A record of the trace, if [`crate::RouterLimits::trace_effects`] asks for them.
    Trace(TraceRecord),
    /// Something worth a line in the log happened.
    Note(Note),
    /// Nothing is pending any more: the process may exit.
    Stopped,
}

/// The result of a bus event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The actor has finished with the event: acknowledge it.
    Processed,
    /// The actor began the event and failed, with whatever code: this counts as an attempt.
    Failed(OsFault),
    /// The capability takes nothing at present, or stopped taking messages before the turn of this event came. No actor
    /// has seen the event, so this does not count as an attempt.
    Unseen,
}
