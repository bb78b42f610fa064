//! The clock of a session: the system's, or a virtual one that only moves when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_model::{Boot, Mono, Now, Timestamp};
use millrace_shell::SystemClock;

/// The start of virtual time: 2026-01-01T00:00:00Z. A round number makes tests readable.
const VIRTUAL_START: Timestamp = Timestamp(1_767_225_600_000);

#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System(SystemClock),
    Virtual(VirtualClock),
}

impl Clock {
    /// Returns which run of the machine this is, if the system can tell.
    pub(crate) fn boot(&self) -> Option<Boot> {
        match self {
            Clock::System(clock) => clock.boot(),
            Clock::Virtual(_) => None,
        }
    }

    pub(crate) fn now(&self) -> Now {
        match self {
            Clock::System(clock) => clock.now(),
            Clock::Virtual(clock) => clock.at(),
        }
    }
}

/// The clock of a simulation. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    pub fn now(&self) -> Timestamp {
        self.at().wall
    }

    /// Lets time pass without anything else happening, as a handler that is busy for that long would see it.
    pub fn pass(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.0.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn at(&self) -> Now {
        let passed = self.0.load(Ordering::SeqCst);
        Now { mono: Mono(passed), wall: VIRTUAL_START + passed, steady_since: Mono(0) }
    }

    /// Moves the time forward to `at`, never back.
    pub(crate) fn reach(&self, at: Mono) {
        self.0.fetch_max(at.0, Ordering::SeqCst);
    }
}
