//! The clocks that a guest sees.

use std::time::{SystemTime, UNIX_EPOCH};

use millrace_reactor::MonoNs;
use rustix::time::{ClockId, clock_gettime};

/// Returns the system's monotonic time. Timers of `sys/loop` and TIME_NOW of `sys/info` share this clock.
pub(crate) fn mono_now() -> MonoNs {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    MonoNs(seconds.saturating_mul(1_000_000_000).saturating_add(ns))
}

/// Returns nanoseconds since 1970; 0 before.
pub(crate) fn realtime_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
