//! Ids of runs and of handler calls.

use std::fmt;

/// A run of this engine. Ordered by start; shown as `run_1`, `run_2`, ...
///
/// The slot finds the run's state without a search; the serial number tells whether the slot still holds this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    pub(crate) serial: u64,
    pub(crate) slot: u32,
}

/// A call of a handler: the effect request number `step` of a run. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    pub run: RunId,
    /// Starts at 1 and grows by one with each effect request of the run.
    pub step: u64,
}

impl RunId {
    /// Starts at 1, grows by one with each run of the engine.
    pub fn serial(self) -> u64 {
        self.serial
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run_{}", self.serial)
    }
}
