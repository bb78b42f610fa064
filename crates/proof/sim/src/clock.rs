//! Virtual time: one count of milliseconds for the world, and a wall clock that may be wrong.

use millrace_model::{Mono, Now, SteadyClock, Timestamp};

use crate::dice::Dice;
use crate::plan::FAR_MS_MAX;

/// The wall clock's time when the world begins. Far from zero, so that it can be set back.
const WALL_START_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Milliseconds since the world began. Never falls.
    pub world_ms: u64,
    wall_shift_ms: i64,
    /// How far the wall clock is off for a moment, in addition to small steps that stay.
    far_ms: i64,
    /// When the running server was started: its monotonic time begins there.
    pub epoch_ms: u64,
}

/// Draws how far off the wall clock will be for a moment, and for how long.
pub(crate) fn draw_far(dice: &mut Dice) -> (i64, u64) {
    const HOUR_MS: i64 = 3_600_000;
    let far_ms = [48, -48, 31 * 24, -3].map(|hours| hours * HOUR_MS)[dice.below(4) as usize];
    (far_ms, dice.between(100, FAR_MS_MAX))
}

/// Reads the wall clock as the real shell does, doubting large steps.
#[derive(Clone, Debug)]
pub(crate) struct Reader(SteadyClock);

impl Reader {
    pub(crate) fn new(settle_ms: u64) -> Reader {
        Reader(SteadyClock::new(settle_ms))
    }

    pub(crate) fn read(&mut self, shown: Now) -> Now {
        self.0.tell(shown.mono, shown.wall).0
    }
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { world_ms: 0, wall_shift_ms: 0, far_ms: 0, epoch_ms: 0 }
    }

    /// The time that the clocks would show if the wall clock were not far off at the moment.
    pub(crate) fn now(&self) -> Now {
        let wall = (WALL_START_MS + self.world_ms).saturating_add_signed(self.wall_shift_ms);
        Now { mono: Mono(self.world_ms - self.epoch_ms), wall: Timestamp(wall), steady_since: Mono(0) }
    }

    /// The time that the clocks show. A process reads it through its [`Reader`].
    pub(crate) fn shown(&self) -> Now {
        let now = self.now();
        Now { wall: Timestamp(now.wall.0.saturating_add_signed(self.far_ms)), ..now }
    }

    pub(crate) fn is_far_off(&self) -> bool {
        self.far_ms != 0
    }

    pub(crate) fn set_far(&mut self, far_ms: i64) {
        self.far_ms = far_ms;
    }

    pub(crate) fn world_at(&self, mono: Mono) -> u64 {
        self.epoch_ms.saturating_add(mono.0)
    }

    pub(crate) fn step_wall(&mut self, by_ms: i64) {
        self.wall_shift_ms += by_ms;
    }
}
