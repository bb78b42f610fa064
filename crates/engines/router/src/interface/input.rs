//! Everything that can happen to the loop: a closed list of inputs from the shell.

use std::sync::Arc;

use millrace_model::{OsFault, OsMessage, Principal, Requester};

/// A client's connection, numbered by the shell; a number is never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A running capability, numbered by the engine. A number is never used twice in a process, so a late message of a
/// removed capability reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityId(pub u32);

/// A message put into a mailbox. A number is never used twice: as a generation, it tells two uses of one request id
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// Matches [`crate::Effect::Commit`] with the [`Input::Committed`] that reports its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitToken(pub u64);

/// The shell's own number for a bus event that an actor is processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub u64);

#[derive(Clone, Debug)]
pub enum Input {
    /// A client has connected.
    Open {
        conn: ConnId,
        by: Requester,
    },
    /// A client has shown a token: `by` is its identity from now on. Messages it sent before keep the identity they
    /// were sent with.
    Identify {
        conn: ConnId,
        by: Requester,
    },
    /// A client has disconnected, or writing to it failed. (A client that only closed its sending side is still
    /// connected.)
    Close {
        conn: ConnId,
    },
    /// A message of a client. Always goes into the user lane.
    Client {
        conn: ConnId,
        message: OsMessage,
    },
    /// An actor emits a message. `during` is the delivery it is working on, if the shell can tell; otherwise the engine
    /// finds that delivery by the message's causation.
    Emit {
        from: CapabilityId,
        during: Option<DeliveryId>,
        message: OsMessage,
        /// For a request: hand the outcome back whatever the manifest declares, because code in the actor waits for it.
        wait: bool,
        /// The shell has set causation and correlation itself, from the message the actor was given. The engine does
        /// not check them, however long ago that message was.
        trusted: bool,
    },
    /// An actor emitted a line that is not a message, or not one it may emit.
    BadEmit {
        from: CapabilityId,
        during: Option<DeliveryId>,
        fault: OsFault,
    },
    /// An actor was handed an event and goes on to its next message: the event's slot in the mailbox is free.
    /// [`Input::Done`] follows when the actor has finished with the event; a capability that is leaving stays until
    /// then.
    Handed {
        from: CapabilityId,
        delivery: DeliveryId,
    },
    /// An actor ends before it has finished with an event that was `owed`: its successor is to get the event.
    GivenBack {
        from: CapabilityId,
        delivery: DeliveryId,
    },
    /// An actor did not answer in time, and the shell no longer waits for it. Counted and reported like a request that
    /// timed out in the engine; the delivery is done.
    GaveUp {
        from: CapabilityId,
        delivery: DeliveryId,
    },
    /// An actor has finished with a delivery: its slot in the mailbox is free. `Err` if it failed: the requester gets
    /// that error, unless it was answered before.
    Done {
        from: CapabilityId,
        delivery: DeliveryId,
        result: Result<(), OsFault>,
    },
    /// The actor has ended and will be restarted. The deliveries it had begun, listed in `begun`, fail with `fault`;
    /// those it had not begun stay in the mailbox. `over` is the message that the actor was ended for, if
    /// [`Input::GaveUp`] has already finished that delivery.
    Crashed {
        capability: CapabilityId,
        begun: Vec<DeliveryId>,
        over: Option<Arc<OsMessage>>,
        fault: OsFault,
    },
    /// The actor named `subscriber` has ended or takes nothing any more, and may not have seen this event. Counted and
    /// reported as `Sys.EventDropped`, unless a timer sent the event and will try again.
    EventLost {
        capability: CapabilityId,
        delivery: DeliveryId,
        subscriber: Arc<str>,
        message: Arc<OsMessage>,
        reason: String,
    },
    /// The capability will not recover by itself: everything in its mailbox and everything new is answered with 503.
    /// [`Input::Crashed`] has named the deliveries it had begun before; it has not seen the rest.
    Unhealthy {
        capability: CapabilityId,
        reason: String,
    },
    Healthy {
        capability: CapabilityId,
    },
    /// Route nothing more to this capability; emit [`crate::Effect::Retired`] when its mailbox is empty.
    Retire {
        capability: CapabilityId,
    },
    /// An event of the bus for one capability. The engine answers by [`crate::Effect::Settle`] when the capability has
    /// finished with it, or cannot take it.
    BusEvent {
        to: CapabilityId,
        receipt: Receipt,
        message: OsMessage,
    },
    /// The answer to [`crate::Effect::CheckSender`]: the principal the timer acts as now, or why it may no longer act.
    SenderChecked {
        timer: u64,
        result: Result<Arc<Principal>, NotTrusted>,
    },
    /// The answer to [`crate::Effect::Commit`].
    Committed {
        token: CommitToken,
        result: Result<(), NotStored>,
    },
    /// Take no more messages from clients: answer them with 503. Pending requests may still be answered; after the last
    /// one, or at [`Input::StopNow`], emit [`crate::Effect::Stopped`].
    Stop,
    /// The grace period is over: answer pending requests with 503.
    StopNow,
}

/// Why a commit wrote nothing, in the words of the store: the engine passes them on to the requester.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotStored(pub String);

impl From<String> for NotStored {
    fn from(reason: String) -> NotStored {
        NotStored(reason)
    }
}

impl From<&str> for NotStored {
    fn from(reason: &str) -> NotStored {
        NotStored(reason.to_owned())
    }
}

/// Why a timer may not send its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTrusted {
    /// The timer is dropped.
    Refused(String),
    /// The token has expired by a clock that may be wrong: the timer is kept, and vouching is tried again later.
    InDoubt(String),
}
