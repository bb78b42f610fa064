//! The system's clocks, in the form in which engines are told the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_model::{Boot, BootId, ClockNews, Mono, Now, SteadyClock, Timestamp};
use parking_lot::Mutex;

/// Monotonic time counts from the start of this clock. Wall time is the system's, but a step is followed only after it
/// has lasted (see [`SteadyClock`]). Clones are the same clock.
#[derive(Clone, Debug)]
pub struct SystemClock(Arc<ClockShared>);

#[derive(Debug)]
struct ClockShared {
    started: Duration,
    boot: Option<BootId>,
    steady: Mutex<SteadyClock>,
    settle_ms: u64,
    steps: AtomicU64,
}

impl SystemClock {
    /// `settle_ms`: how long a step of the wall clock must last until it is followed.
    pub fn start(settle_ms: u64) -> SystemClock {
        let (steady, steps) = (Mutex::new(SteadyClock::new(settle_ms)), AtomicU64::new(0));
        let clock = SystemClock(Arc::new(ClockShared {
            started: uptime(),
            boot: boot_id(),
            steady,
            settle_ms,
            steps,
        }));
        // The first reading: steps are noticed from here on.
        clock.now();
        clock
    }

    pub fn now(&self) -> Now {
        // Nothing can panic while the lock is held, so poisoning can be ignored.
        let mut steady = self.0.steady.lock();
        // Both clocks are read under the lock: monotonic time must not fall from one reading to the next.
        let (now, news) = steady.tell(Mono(ms(self.elapsed())), wall());
        drop(steady);
        if let Some(news) = news {
            self.report(now, news);
        }
        now
    }

    /// Whether the wall clock has been steady for the settling time. Before that it may be wrong: actions that cannot
    /// be undone must not depend on it.
    pub fn is_settled(&self, now: Now) -> bool {
        now.mono.0.saturating_sub(now.steady_since.0) >= self.0.settle_ms
    }

    /// How long until `at`; zero if it has passed. Not computed from [`SystemClock::now`], whose milliseconds are
    /// rounded down: a waiter would oversleep by up to one.
    pub fn until(&self, at: Mono) -> Duration {
        Duration::from_millis(at.0).saturating_sub(self.elapsed())
    }

    /// Identifies the current boot of the machine, and how long the machine had been up when this clock was made.
    /// `None` where the system does not tell.
    pub fn boot(&self) -> Option<Boot> {
        self.0.boot.map(|id| Boot { id, up_at_zero_ms: ms(self.0.started) })
    }

    /// How often the wall clock has stepped by more than a minute.
    pub fn steps(&self) -> u64 {
        self.0.steps.load(Relaxed)
    }

    fn elapsed(&self) -> Duration {
        uptime().saturating_sub(self.0.started)
    }

    fn report(&self, now: Now, news: ClockNews) {
        let wall = now.wall.to_string();
        if matches!(news, ClockNews::Stepped { .. } | ClockNews::Followed { doubted: false, .. }) {
            self.0.steps.fetch_add(1, Relaxed);
        }
        match news {
            ClockNews::Stepped { by_ms } => {
                tracing::warn!(
                    by_ms,
                    wall,
                    "the wall clock stepped: time goes on as before until the step has lasted for clock-settle-ms"
                );
            }
            ClockNews::Returned => tracing::warn!(wall, "the wall clock is back: its step was ignored"),
            ClockNews::Followed { by_ms, .. } => {
                tracing::warn!(by_ms, wall, "the wall clock was changed: its new time is taken over");
            }
        }
    }
}

/// Time since the machine started, including the time it slept: a laptop that wakes up has not had its clock stepped.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn uptime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A random id that the kernel makes when the machine starts. A time namespace counts [`uptime`] from a moment of its
/// own, so its number is part of the id.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()?;
    // A kernel without time namespaces has no such link.
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    let number: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some(BootId(id.wrapping_add(number.parse().unwrap_or(0))))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn boot_id() -> Option<BootId> {
    None
}

/// Time since the first call. Where the monotonic clock stands still while the machine sleeps, waking up looks like a
/// step.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn uptime() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

/// A system clock before 1970 reads as 1970.
fn wall() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
