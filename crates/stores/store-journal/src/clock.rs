//! The clocks that a shared store looks at, behind a trait so that tests and simulations can set them.

use std::fmt;
use std::time::Duration;

/// Times in milliseconds.
pub trait EngineClock: Send + Sync + fmt::Debug + 'static {
    /// Returns a clock that never steps and goes on while the machine is suspended.
    fn mono_ms(&self) -> u64;

    /// Returns the wall clock. Looked at beside `mono_ms`, never instead of it.
    fn wall_ms(&self) -> u64;

    /// Waits, at most this long. May return early.
    fn pause(&self, at_most: Duration);
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEngineClock;

impl EngineClock for SystemEngineClock {
    fn mono_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn wall_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        (now.tv_sec.max(0) as u64) * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn pause(&self, at_most: Duration) {
        std::thread::sleep(at_most);
    }
}
