//! How late a timer is reported, beside a bare wait in epoll for the same time.

use std::time::{Duration, Instant};

use millrace_reactor::PollTimeout;

use super::guest::Guest;
use crate::BenchOptions;
use crate::error::BenchError;
use crate::figures::Latencies;
use crate::report::Collector;

/// From arming a timer to its deadline.
const AFTER: Duration = Duration::from_micros(1500);

pub(super) fn measure(options: &BenchOptions, out: &mut Collector) -> Result<(), BenchError> {
    let mut guest = Guest::new()?;
    let bare = BareEpoll::new()?;
    let (mut of_loop, mut of_epoll) = (Latencies::default(), Latencies::default());
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < options.seconds {
        options.go_on()?;
        let armed = Instant::now();
        guest.arm(1, AFTER.as_nanos() as u64)?;
        if guest.poll(PollTimeout::Forever)? != 1 {
            return Err(BenchError::Unexpected("a POLL ended before its timer".to_owned()));
        }
        of_loop.push(armed.elapsed().saturating_sub(AFTER));
        let waited = Instant::now();
        bare.wait(AFTER)?;
        of_epoll.push(waited.elapsed().saturating_sub(AFTER));
    }
    for (name, late) in [("timer", &mut of_loop), ("bare epoll", &mut of_epoll)] {
        out.add("lateness", &format!("{name} p50"), "ms", late.quantile_ms(0.5));
        out.add("lateness", &format!("{name} p99"), "ms", late.quantile_ms(0.99));
    }
    Ok(())
}

/// An epoll instance without descriptors.
struct BareEpoll(std::os::fd::OwnedFd);

impl BareEpoll {
    fn new() -> Result<BareEpoll, BenchError> {
        let made = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        Ok(BareEpoll(made.map_err(|error| BenchError::io("making an epoll instance", error.into()))?))
    }

    /// Waits with a resolution of nanoseconds (`epoll_pwait2`).
    fn wait(&self, time: Duration) -> Result<(), BenchError> {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut events = Vec::with_capacity(1);
        let waited =
            rustix::event::epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
        waited.map(drop).map_err(|error| BenchError::io("waiting in epoll", error.into()))
    }
}
