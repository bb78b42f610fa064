//! What the loop tells for logs. Each one is also an event of the same name for capabilities that subscribe to it.

use millrace_model::{OsId, OsKind, OsMessage, OsType};

use crate::input::CapabilityId;

/// Who hears of a note besides the log. Nobody is told about what it did itself, and nobody about what became of talk of
/// the loop: or one that fails at every `Sys.ActorFault` would keep the loop busy for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    Subscribers,
    SubscribersBut(CapabilityId),
    Nobody,
}

/// The message that a note follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) id: OsId,
    /// The undertaking that message belongs to, if it says one.
    pub(crate) correlation: Option<OsId>,
}

impl Cause {
    pub(crate) fn of(message: &OsMessage) -> Cause {
        let metadata = &message.metadata;
        Cause { id: metadata.id.clone(), correlation: metadata.correlation.clone() }
    }
}

/// Nothing depends on these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// `Sys.RoutingError`: nobody handles it.
    RoutingError {
        kind: OsKind,
        ty: OsType,
        id: OsId,
    },
    /// `Sys.ActorFault`: an actor failed, or said what it may not say.
    ActorFault {
        capability: String,
        message: String,
        request: Option<OsId>,
    },
    /// `Sys.OrphanOutcome`: an outcome nobody waits for.
    OrphanOutcome {
        from: String,
        ty: OsType,
        id: OsId,
        causation: Option<OsId>,
    },
    /// `Sys.Routed`: a message was put into these mailboxes.
    Routed {
        kind: OsKind,
        ty: OsType,
        id: OsId,
        to: Vec<String>,
    },
    /// `Sys.EventDropped`: a subscriber did not get an event, or `dropped` of them since it was last told.
    EventDropped {
        capability: String,
        /// Of the newest of them.
        ty: OsType,
        id: OsId,
        reason: String,
        dropped: u64,
    },
    /// `Sys.RequestTimedOut`: it was answered with 504.
    RequestTimedOut {
        ty: OsType,
        id: OsId,
    },
    /// `Sys.BootComplete`: everybody who is to be there at the start is there, and timers run.
    BootComplete {
        capabilities: usize,
        /// Of the process before.
        timers: usize,
    },
    /// `Sys.CapabilityUp`, `Sys.CapabilityDown`: supervision.
    CapabilityUp {
        capability: String,
    },
    CapabilityDown {
        capability: String,
        reason: String,
    },
    /// `Sys.TimerSet`, `Sys.TimerFired`, `Sys.TimerCancelled`.
    TimerSet {
        timer: String,
    },
    TimerFired {
        timer: String,
    },
    TimerCancelled {
        timer: String,
    },
    /// `Sys.TimerRefused`: it was due, and whoever set it may not send what it was to send any more. It is gone.
    TimerRefused {
        timer: String,
        agent: String,
        ty: OsType,
        reason: String,
    },
    /// `Sys.TimerWaits`: a durable timer was due and nobody subscribes to its event. It waits for somebody who does.
    TimerWaits {
        timer: String,
        ty: String,
        /// How long.
        wait_ms: u64,
    },
    /// `Sys.TimerLost`: a timer's row cannot be read, or what it was to send cannot be sent any more.
    TimerLost {
        timer: String,
        reason: String,
    },
}
