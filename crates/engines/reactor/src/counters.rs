//! Counters since a loop was opened, and gauges of its present state.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub polls: u64,
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
