//! What the loop has done since it started, and what it holds now.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub turns: u64,
    /// Those that took a message of the system lane.
    pub system_turns: u64,
    /// Commands and queries of clients.
    pub requests: u64,
    /// Commands and queries of actors and timers.
    pub internal_requests: u64,
    pub events: u64,
    /// Events nobody listens to.
    pub events_unheard: u64,
    /// Events a listener did not get: its mailbox was full, it is unhealthy, or the data does not fit its schema.
    pub events_undelivered: u64,
    pub replies: u64,
    /// Errors that actors answered with.
    pub errors: u64,
    /// Errors the loop answered with.
    pub refusals: u64,
    /// Requests answered with 503 because a mailbox or a table was full.
    pub overloads: u64,
    pub timeouts: u64,
    pub orphan_outcomes: u64,
    /// Requests nobody handles.
    pub routing_errors: u64,
    pub actor_faults: u64,
    pub timers_set: u64,
    pub timers_cancelled: u64,
    pub timers_fired: u64,
    /// Timers that were due and not sent, because whoever set them may not send it any more.
    pub timers_refused: u64,
    /// Timers that could not send what they were to send, and never will.
    pub timers_lost: u64,
    /// Observability events that were not sent because the system lane was full.
    pub notes_dropped: u64,
}

/// What there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub connections: usize,
    pub pending: usize,
    pub system_lane: usize,
    pub user_lane: usize,
    /// Messages in mailboxes, those in hand included.
    pub in_mailboxes: usize,
    pub timers: usize,
    pub capabilities: usize,
    pub unhealthy: usize,
}
