//! How late a timer is reported, compared with a bare wait in epoll for the same time.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use millrace_reactor::PollTimeout;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

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

/// An epoll instance that waits for one timer of the kernel. (The timeout of `epoll_wait` itself is in milliseconds.)
struct BareEpoll {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl BareEpoll {
    fn new() -> Result<BareEpoll, BenchError> {
        let wrong = |error: Errno| BenchError::io("making an epoll instance", error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wrong)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).map_err(wrong)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(wrong)?;
        Ok(BareEpoll { epoll, timer })
    }

    fn wait(&self, time: Duration) -> Result<(), BenchError> {
        let wrong = |error: Errno| BenchError::io("waiting in epoll", error.into());
        let it_value = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map_err(wrong)?;
        let mut events = Vec::with_capacity(1);
        epoll::wait(&self.epoll, spare_capacity(&mut events), None).map_err(wrong)?;
        // Reads the kernel's count of expirations: until it is read, the timer stays ready.
        rustix::io::read(&self.timer, &mut [0u8; 8]).map(drop).map_err(wrong)
    }
}
