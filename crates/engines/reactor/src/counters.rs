//! Counters since a loop was opened, and gauges of its present state.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests executed, POLLs included.
    pub requests: u64,
    /// Requests and malformed frames that were answered with an error frame.
    pub errors: u64,
    /// Writes that were refused because there was no room for the answer, or because a POLL was waiting.
    pub refused_writes: u64,
    /// Writes whose bytes could not be cut into frames.
    pub malformed_writes: u64,
    pub polls: u64,
    pub ready_events: u64,
    pub timer_events: u64,
    /// Watches that reports and deliveries looked at: the work that readiness causes, idle watches not included.
    pub watches_examined: u64,
}

/// The present state of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    pub watches: usize,
    /// Watches that the next POLL would report, if their handles stay as they are.
    pub ready: usize,
    pub timers: usize,
    /// Bytes of replies that the guest has not read.
    pub output_bytes: usize,
    /// Bytes of an incomplete request.
    pub input_bytes: usize,
}
