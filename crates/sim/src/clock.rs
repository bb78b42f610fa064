//! Virtual time: one count of milliseconds for the world, and a wall clock that may be wrong.

use millrace_model::{Mono, Now, Timestamp};

/// The wall clock's reading when the world begins. Far from zero, so that it can be set back.
const WALL_START_MS: u64 = 1_700_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Since the world began. Never falls.
    pub world_ms: u64,
    wall_shift_ms: i64,
    /// When the server that is running was started: its monotonic time begins there.
    pub epoch_ms: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        Clock { world_ms: 0, wall_shift_ms: 0, epoch_ms: 0 }
    }

    pub(crate) fn now(&self) -> Now {
        let wall = (WALL_START_MS + self.world_ms).saturating_add_signed(self.wall_shift_ms);
        Now { mono: Mono(self.world_ms - self.epoch_ms), wall: Timestamp(wall) }
    }

    pub(crate) fn world_at(&self, mono: Mono) -> u64 {
        self.epoch_ms.saturating_add(mono.0)
    }

    pub(crate) fn step_wall(&mut self, by_ms: i64) {
        self.wall_shift_ms += by_ms;
    }
}
