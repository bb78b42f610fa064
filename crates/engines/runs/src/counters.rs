//! Counters since the engine started, and gauges of its present state.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub ticks: u64,
    /// Continuation steps: calls of an entry and applied answers.
    pub steps: u64,
    pub started: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Inputs about a run that had ended, or about a call that already had its answer.
    pub inputs_dropped: u64,
    /// Completions and timers that took effect too late: their run had ended, or their call already had its answer.
    pub externals_dropped: u64,
    pub timers_fired: u64,
}

/// The present state of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Runs that have not ended.
    pub runs: usize,
    /// Runs whose next step can execute.
    pub ready: usize,
    /// External completions that wait for the next tick.
    pub external: usize,
    /// Timers that are set and have not fired.
    pub timers: usize,
}
