//! Waiting until a moment, to the nanosecond where the operating system can. `mio` rounds the timeouts of epoll up to
//! whole milliseconds, so on Linux a timer descriptor ends the wait.

use std::io;
use std::time::Duration;

use millrace_reactor::MonoNs;
use mio::Registry;

#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    timer: std::os::fd::OwnedFd,
    /// The moment that the timer is set to.
    set_to: Option<MonoNs>,
}

#[cfg(target_os = "linux")]
impl DeadlineTimer {
    pub(crate) fn new(registry: &Registry) -> io::Result<DeadlineTimer> {
        use std::os::fd::AsRawFd;

        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let mut source = mio::unix::SourceFd(&timer.as_raw_fd());
        registry.register(&mut source, crate::os_poller::TIMER, mio::Interest::READABLE)?;
        Ok(DeadlineTimer { timer, set_to: None })
    }

    /// Makes the poller wake up at `deadline`, which is later than `now`. Returns the timeout to wait with.
    pub(crate) fn timeout(&mut self, _now: MonoNs, deadline: MonoNs) -> io::Result<Option<Duration>> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        const NS: u64 = 1_000_000_000;
        // The timer is edge-triggered and set anew for each deadline, so it is never read.
        if self.set_to != Some(deadline) {
            let seconds = i64::try_from(deadline.0 / NS).unwrap_or(i64::MAX);
            let ns = i64::try_from(deadline.0 % NS).unwrap_or(0);
            let at = Timespec { tv_sec: seconds, tv_nsec: ns };
            let never_again = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Itimerspec { it_interval: never_again, it_value: at };
            timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)?;
            self.set_to = Some(deadline);
        }
        Ok(None)
    }
}

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct DeadlineTimer;

#[cfg(not(target_os = "linux"))]
impl DeadlineTimer {
    pub(crate) fn new(_registry: &Registry) -> io::Result<DeadlineTimer> {
        Ok(DeadlineTimer)
    }

    /// Returns the timeout itself: kqueue takes nanoseconds.
    pub(crate) fn timeout(&mut self, now: MonoNs, deadline: MonoNs) -> io::Result<Option<Duration>> {
        Ok(Some(Duration::from_nanos(deadline.0.saturating_sub(now.0))))
    }
}
