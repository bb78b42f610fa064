//! The system clock in the shape engines are told the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_model::{Mono, Now, Timestamp};

/// Monotonic time counts from when the clock was made; wall time is whatever the system says now.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    pub fn start() -> SystemClock {
        SystemClock { started: Instant::now() }
    }

    pub fn now(&self) -> Now {
        Now { mono: Mono(ms(self.started.elapsed())), wall: wall() }
    }

    /// How long until `at`; nothing if it has passed. Not computed from [`SystemClock::now`], whose milliseconds are
    /// rounded down: a waiter would oversleep by up to one.
    pub fn until(&self, at: Mono) -> Duration {
        (self.started + Duration::from_millis(at.0)).saturating_duration_since(Instant::now())
    }
}

/// A system clock before 1970 reads as 1970.
fn wall() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
