//! A clock that tests set.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use millrace_store_journal::EngineClock;

pub(crate) const MINUTE: u64 = 60 * 1000;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// Pauses let the time pass at once.
#[derive(Debug)]
pub(crate) struct ManualClock {
    mono_ms: AtomicU64,
    wall_ms: AtomicU64,
}

impl ManualClock {
    pub(crate) fn new() -> ManualClock {
        ManualClock { mono_ms: AtomicU64::new(1_000_000), wall_ms: AtomicU64::new(1_700_000_000_000) }
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.pass_mono(ms);
        self.pass_wall(ms);
    }

    pub(crate) fn pass_mono(&self, ms: u64) {
        self.mono_ms.fetch_add(ms, SeqCst);
    }

    pub(crate) fn pass_wall(&self, ms: u64) {
        self.wall_ms.fetch_add(ms, SeqCst);
    }

    pub(crate) fn set_back(&self, ms: u64) {
        self.wall_ms.fetch_sub(ms, SeqCst);
    }

    pub(crate) fn mono(&self) -> u64 {
        self.mono_ms.load(SeqCst)
    }
}

impl EngineClock for ManualClock {
    fn mono_ms(&self) -> u64 {
        self.mono()
    }

    fn wall_ms(&self) -> u64 {
        self.wall_ms.load(SeqCst)
    }

    fn pause(&self, at_most: Duration) {
        self.pass(at_most.as_millis() as u64);
        // Other threads of the test may be what is waited for.
        std::thread::yield_now();
    }
}
