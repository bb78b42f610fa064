//! Everything that can happen to the loop: a closed list.

use std::sync::Arc;

use millrace_model::{OsFault, OsMessage, Principal};

/// A client's connection, numbered by the shell; a number is never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A capability that runs, numbered by the engine; a number is never used twice in a process, so that whatever a
/// removed one says late reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityId(pub u32);

/// One message put into one mailbox; a number is never used twice. It is the generation that tells two uses of one
/// request id apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// Ties [`crate::Effect::Commit`] to the input that reports its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A bus event in an actor's hands; the shell's own number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub u64);

/// Who a client proved to be; `None` where no access control concerns them.
pub type By = Option<Arc<Principal>>;

#[derive(Clone, Debug)]
pub enum Input {
    /// A client is there.
    Open {
        conn: ConnId,
        by: By,
    },
    /// A client showed a token: who it is from now on. What it sent before was sent by whoever it was then.
    Identify {
        conn: ConnId,
        by: By,
    },
    /// It hung up, or could not be written to. (Who only stopped writing is still there.)
    Close {
        conn: ConnId,
    },
    /// One message of a client. Always the user lane.
    Client {
        conn: ConnId,
        message: OsMessage,
    },
    /// An actor says something. `during` is the delivery it has in hand, if it can tell; otherwise it is found by
    /// the message's causation.
    Emit {
        from: CapabilityId,
        during: Option<DeliveryId>,
        message: OsMessage,
        /// For a request: post the outcome back whatever the manifest declares, because somebody waits for it.
        wait: bool,
        /// Causation and correlation were set by the shell, from the message the actor was given: there is nothing to
        /// check about them, however long ago that was.
        vouched: bool,
    },
    /// An actor said something that is no message, or not one it may say.
    BadEmit {
        from: CapabilityId,
        during: Option<DeliveryId>,
        fault: OsFault,
    },
    /// An actor was handed an event and goes on to the next message: its place in the mailbox is free. [`Input::Done`]
    /// follows when it has finished with the event; a capability that is to go does not go before that.
    Handed {
        from: CapabilityId,
        delivery: DeliveryId,
    },
    /// An actor ends and has not finished with an event that was `owed`: its successor is to have it.
    GivenBack {
        from: CapabilityId,
        delivery: DeliveryId,
    },
    /// An actor did not answer in time, and is not waited for any longer. Counts and is told like a request whose
    /// patience ended in the engine; the delivery is done.
    GaveUp {
        from: CapabilityId,
        delivery: DeliveryId,
    },
    /// An actor has finished with a delivery: its place in the mailbox is free. `Err` if it failed: the requester
    /// gets that error unless it was answered before.
    Done {
        from: CapabilityId,
        delivery: DeliveryId,
        result: Result<(), OsFault>,
    },
    /// The actor is gone and will be back: whatever it had begun fails with `fault`, what it had not begun stays.
    /// `begun` lists those it had begun. `over` is the message that it was ended for, if [`Input::GaveUp`] has finished
    /// that delivery already.
    Crashed {
        capability: CapabilityId,
        begun: Vec<DeliveryId>,
        over: Option<Arc<OsMessage>>,
        fault: OsFault,
    },
    /// The actor, which is named `subscriber`, may not have seen this event: it ended, or takes nothing any more. Counted
    /// and told by `Sys.EventDropped`, unless a timer tries again.
    EventLost {
        capability: CapabilityId,
        delivery: DeliveryId,
        subscriber: Arc<str>,
        message: Arc<OsMessage>,
        reason: String,
    },
    /// It will not be back by itself: everything in its mailbox and everything new is answered with 503. What it had
    /// begun is named by [`Input::Crashed`] before: nobody has seen the rest.
    Unhealthy {
        capability: CapabilityId,
        reason: String,
    },
    Healthy {
        capability: CapabilityId,
    },
    /// Take no more for it; when its mailbox is empty say [`crate::Effect::Retired`].
    Retire {
        capability: CapabilityId,
    },
    /// An event of the bus for one capability. Answered by [`crate::Effect::Settle`] when it was processed.
    BusEvent {
        to: CapabilityId,
        receipt: Receipt,
        message: OsMessage,
    },
    /// The answer to [`crate::Effect::Vouch`]: as whom the timer acts now, or why it may not any more.
    Vouched {
        timer: u64,
        result: Result<Arc<Principal>, NotVouched>,
    },
    /// The answer to [`crate::Effect::Commit`]. `Err` says why nothing was written.
    Committed {
        token: Token,
        result: Result<(), String>,
    },
    /// Take no more messages of clients: they are answered with 503. What is pending may still be answered; then, or
    /// at [`Input::StopNow`], say [`crate::Effect::Stopped`].
    Stop,
    /// The grace is used up: answer what is pending with 503.
    StopNow,
}

/// Why a timer may not send its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotVouched {
    /// The timer is dropped.
    Refused(String),
    /// The token has expired by a clock that may be wrong: the timer is kept and asked for again later.
    InDoubt(String),
}
