//! Counters since the loop started, and gauges of its present state.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub turns: u64,
    /// Turns that took a task from the system lane.
    pub system_turns: u64,
    /// Commands and queries of clients.
    pub requests: u64,
    /// Commands and queries of actors and timers.
    pub internal_requests: u64,
    pub events: u64,
    /// Events without a subscriber.
    pub events_unheard: u64,
    /// Events that a subscriber did not get: its mailbox was full, it is unhealthy, or the data does not fit its
    /// schema. Also events of types that clients may not send.
    pub events_undelivered: u64,
    pub replies: u64,
    /// Errors with which actors answered requests.
    pub errors: u64,
    /// Errors with which the loop itself answered requests.
    pub refusals: u64,
    /// Messages refused with 503, or dropped, because a mailbox, a lane or a table was full.
    pub overloads: u64,
    pub timeouts: u64,
    pub orphan_outcomes: u64,
    /// Requests that no capability handles.
    pub routing_errors: u64,
    pub actor_faults: u64,
    pub timers_set: u64,
    pub timers_cancelled: u64,
    pub timers_fired: u64,
    /// Timers that were due but sent nothing, because the agent that set them may no longer send their message.
    pub timers_refused: u64,
    /// Timers whose message could not be sent and never will be, or at whose event a subscriber failed.
    pub timers_lost: u64,
    /// Observability events that were not sent because the system lane was full.
    pub notes_dropped: u64,
}

/// The present state of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub connections: usize,
    pub pending: usize,
    pub system_lane: usize,
    pub user_lane: usize,
    /// Messages in mailboxes, including those in progress.
    pub in_mailboxes: usize,
    pub timers: usize,
    pub capabilities: usize,
    pub unhealthy: usize,
}
