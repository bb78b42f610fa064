//! What the loop tells for logs. Each one is also an event of the same name for capabilities that subscribe to it.

use millrace_model::{OsId, OsKind, OsType};

use crate::input::CapabilityId;

/// Who hears of a note besides the log. Nobody is told about what it did itself, and nobody about what became of talk of
/// the loop: or one that fails at every `Sys.ActorFault` would keep the loop busy for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    Subscribers,
    SubscribersBut(CapabilityId),
    Nobody,
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
    /// `Sys.TimerLost`: a timer's row cannot be read, or what it was to send cannot be sent any more.
    TimerLost {
        timer: String,
        reason: String,
    },
}
