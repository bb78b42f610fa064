//! The clock of a host: the system's, or a virtual one that moves when nothing is left to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use millrace_model::{Mono, TICK_MS};
use millrace_shell::SystemClock;
use tokio::sync::Notify;

/// How long a step of the system's wall clock must last before it is believed.
const CLOCK_SETTLE_MS: u64 = 1_000;

/// The clock of a host's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    #[default]
    Real,
    /// Starts at zero and jumps to the next timer as soon as every step, completion and handler has been served: the
    /// same programs and handlers give the same trace every time. `system_start_ms` is the time of the wall clock at
    /// zero.
    Virtual { system_start_ms: u64 },
}

#[derive(Clone)]
pub(crate) enum HostClock {
    Real(SystemClock),
    Virtual(Arc<VirtualClock>),
}

#[derive(Debug)]
pub(crate) struct VirtualClock {
    now_ms: AtomicU64,
    system_start_ms: u64,
    holds: AtomicUsize,
    released: Arc<Notify>,
}

/// See [`crate::HandlerCall::hold_clock`].
#[derive(Debug)]
pub struct ClockHold(Option<Arc<VirtualClock>>);

impl HostClock {
    /// `released` is notified when the last hold is dropped.
    pub(crate) fn start(clock: Clock, released: Arc<Notify>) -> HostClock {
        match clock {
            Clock::Real => HostClock::Real(SystemClock::start(CLOCK_SETTLE_MS)),
            Clock::Virtual { system_start_ms } => {
                let (now_ms, holds) = (AtomicU64::new(0), AtomicUsize::new(0));
                HostClock::Virtual(Arc::new(VirtualClock { now_ms, system_start_ms, holds, released }))
            }
        }
    }

    pub(crate) fn now(&self) -> Mono {
        match self {
            HostClock::Real(clock) => clock.now().mono,
            HostClock::Virtual(clock) => Mono(clock.now_ms.load(SeqCst)),
        }
    }

    /// Whether this moment has passed. Cheaper than [`HostClock::now`], which also reads the wall clock.
    pub(crate) fn has_passed(&self, at: Mono) -> bool {
        match self {
            HostClock::Real(clock) => clock.until(at).is_zero(),
            HostClock::Virtual(_) => self.now() >= at,
        }
    }

    pub(crate) fn is_virtual(&self) -> bool {
        matches!(self, HostClock::Virtual(_))
    }

    /// The first moment that is surely `ms` away or more.
    pub(crate) fn after_ms(&self, ms: u64) -> Mono {
        match self {
            HostClock::Real(_) => self.now() + ms + TICK_MS,
            HostClock::Virtual(_) => self.now() + ms,
        }
    }

    pub(crate) fn system_ms(&self) -> u64 {
        match self {
            HostClock::Real(clock) => clock.now().wall.0,
            HostClock::Virtual(clock) => clock.system_start_ms.saturating_add(clock.now_ms.load(SeqCst)),
        }
    }

    pub(crate) fn hold(&self) -> ClockHold {
        match self {
            HostClock::Real(_) => ClockHold(None),
            HostClock::Virtual(clock) => {
                clock.holds.fetch_add(1, SeqCst);
                ClockHold(Some(clock.clone()))
            }
        }
    }
}

impl VirtualClock {
    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(SeqCst) > 0
    }

    /// Moves the clock forward, never backwards.
    pub(crate) fn move_to(&self, at: Mono) {
        self.now_ms.fetch_max(at.0, SeqCst);
    }
}

impl Drop for ClockHold {
    fn drop(&mut self) {
        if let Some(clock) = &self.0
            && clock.holds.fetch_sub(1, SeqCst) == 1
        {
            clock.released.notify_one();
        }
    }
}
