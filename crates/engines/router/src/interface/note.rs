//! Notes: what the loop reports for logs. Each note is also an event of the same name, for capabilities that subscribe
//! to it.

use millrace_model::{OsId, OsKind, OsMessage, OsType};

use crate::interface::input::CapabilityId;

/// The recipients of a note besides the log. No capability is told about its own doings, and nobody about the fate of
/// the loop's own events: otherwise a capability that fails at every `Sys.ActorFault` would keep the loop busy for
/// ever.
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
    /// The correlation of that message (the undertaking it belongs to), if it has one.
    pub(crate) correlation: Option<OsId>,
}

impl Cause {
    pub(crate) fn of(message: &OsMessage) -> Cause {
        let metadata = &message.metadata;
        Cause { id: metadata.id.clone(), correlation: metadata.correlation.clone() }
    }
}

/// Reports for logs and subscribers; nothing in the engine depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// `Sys.RoutingError`: no capability handles this request.
    RoutingError {
        kind: OsKind,
        ty: OsType,
        id: OsId,
    },
    /// `Sys.ActorFault`: an actor failed, or emitted a message that it may not emit.
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
    /// `Sys.EventDropped`: a subscriber did not get an event; `dropped` counts them since the last report.
    EventDropped {
        capability: String,
        /// Type, id and reason are those of the newest dropped event.
        ty: OsType,
        id: OsId,
        reason: String,
        dropped: u64,
    },
    /// `Sys.RequestTimedOut`: the request was answered with 504.
    RequestTimedOut {
        ty: OsType,
        id: OsId,
    },
    /// `Sys.BootComplete`: the capabilities of the configuration are installed, and timers run.
    BootComplete {
        capabilities: usize,
        /// Timers restored from the previous process.
        timers: usize,
    },
    /// `Sys.CapabilityUp`, `Sys.CapabilityDown`: a capability was installed or has recovered; it crashed or is
    /// unhealthy.
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
    /// `Sys.TimerRefused`: a timer was due, but the agent that set it may no longer send its message. The timer is
    /// dropped.
    TimerRefused {
        timer: String,
        agent: String,
        ty: OsType,
        reason: String,
    },
    /// `Sys.TimerWaits`: a durable timer was due and nobody subscribes to its event. The timer waits for a subscriber.
    TimerWaits {
        timer: String,
        ty: String,
        /// How long it waits at most.
        wait_ms: u64,
    },
    /// `Sys.TimerLost`: a timer's row cannot be read or removed, its message cannot be sent any more, or a subscriber
    /// failed at its event.
    TimerLost {
        timer: String,
        reason: String,
    },
}
