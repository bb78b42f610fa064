//! The clocks of simulated machines: each runs a little fast or slow, and its wall clock may be wrong.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use millrace_store_journal::EngineClock;
use parking_lot::Mutex;

use super::hub::Hub;

/// The wall clocks' time when the world begins. Far from zero, so that they can be set back.
const WALL_START_MS: u64 = 1_700_000_000_000;

/// The clocks of one machine. They go on while its server is stopped or down.
#[derive(Debug)]
pub(super) struct MachineClock {
    world_ms: Arc<AtomicU64>,
    /// How long the machine was up when the world began.
    uptime_ms: u64,
    /// How much faster than the world the clocks run, in millionths.
    drift_ppm: i64,
    /// How far the wall clock is off.
    wall_shift_ms: AtomicI64,
    /// When the clocks stand still because the machine is suspended from outside: from and until, in the world's time.
    suspended: Mutex<Vec<(u64, u64)>>,
}

impl MachineClock {
    pub(super) fn new(
        world_ms: Arc<AtomicU64>,
        uptime_ms: u64,
        drift_ppm: i64,
        wall_shift_ms: i64,
    ) -> MachineClock {
        let (wall_shift_ms, suspended) = (AtomicI64::new(wall_shift_ms), Mutex::default());
        MachineClock { world_ms, uptime_ms, drift_ppm, wall_shift_ms, suspended }
    }

    fn passed_ms(&self) -> u64 {
        let now_ms = self.world_ms.load(Relaxed);
        let stood_ms = |(from_ms, until_ms): &(u64, u64)| now_ms.min(*until_ms).saturating_sub(*from_ms);
        let world_ms = now_ms - self.suspended.lock().iter().map(stood_ms).sum::<u64>();
        world_ms.saturating_add_signed(world_ms as i64 * self.drift_ppm / 1_000_000)
    }

    pub(super) fn mono_ms(&self) -> u64 {
        self.uptime_ms + self.passed_ms()
    }

    pub(super) fn wall_ms(&self) -> u64 {
        (WALL_START_MS + self.passed_ms()).saturating_add_signed(self.wall_shift_ms.load(Relaxed))
    }

    pub(super) fn set_wall_shift(&self, shift_ms: i64) {
        self.wall_shift_ms.store(shift_ms, Relaxed);
    }

    /// The clocks stand still from now on, until the world is this old.
    pub(super) fn suspend_until(&self, until_ms: u64) {
        self.suspended.lock().push((self.world_ms.load(Relaxed), until_ms));
    }

    pub(super) fn is_suspended(&self) -> bool {
        let now_ms = self.world_ms.load(Relaxed);
        self.suspended.lock().last().is_some_and(|(_, until_ms)| now_ms < *until_ms)
    }

    /// The clocks go on at once.
    pub(super) fn resume(&self) {
        let now_ms = self.world_ms.load(Relaxed);
        self.suspended.lock().iter_mut().for_each(|(_, until_ms)| *until_ms = now_ms.min(*until_ms));
    }

    /// Returns how much time of the world passes while these clocks count `ms`.
    fn world_time_of(&self, ms: u64) -> u64 {
        ms.saturating_sub_signed(ms as i64 * self.drift_ppm / 1_000_000).max(1)
    }
}

/// The clock as one process sees it.
pub(super) struct ProcessClock {
    pub(super) hub: Arc<Hub>,
    pub(super) clock: Arc<MachineClock>,
    pub(super) server: usize,
    pub(super) life: u64,
}

impl EngineClock for ProcessClock {
    fn mono_ms(&self) -> u64 {
        self.clock.mono_ms()
    }

    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// The rest of the world goes on meanwhile. A process that was killed does not wait.
    fn pause(&self, at_most: Duration) {
        let ms = self.clock.world_time_of(at_most.as_millis() as u64);
        self.hub.wait(self.server, self.life, ms);
    }
}

impl fmt::Debug for ProcessClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessClock").field("server", &self.server).field("life", &self.life).finish()
    }
}
