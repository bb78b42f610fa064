//! What the engine has done since it started, and what it holds now.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub ticks: u64,
    /// Continuation steps: entries and applied answers.
    pub steps: u64,
    pub started: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Inputs about a run that had ended, or about a call that had its answer.
    pub inputs_dropped: u64,
    /// Completions and timers that fired after their run had ended or their call had its answer.
    pub externals_dropped: u64,
    pub timers_fired: u64,
}

/// What there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Runs that have not ended.
    pub runs: usize,
    /// Runs whose next step can execute.
    pub ready: usize,
    /// External completions that wait for the next tick.
    pub external: usize,
    /// Timers set and not fired.
    pub timers: usize,
}
