//! Faults of the server and its clock, drawn at every tick; and the calm after them.

use super::{Happening, World};
use crate::actor::ActorId;
use crate::check::unfinished;
use crate::clock::draw_far;
use crate::disk::Ending;
use crate::fault::Fault;

/// The wall clock is never further off than this, so that every delayed event comes due in the calm.
const WALL_SHIFT_MS_MAX: i64 = 10_000;
/// Longer than the slowest commits that a stop may have to wait for.
const STOP_MS_MAX: u64 = 60_000;

impl World {
    pub(super) fn fate(&mut self) {
        if self.desk.calm {
            return;
        }
        let next_ms = self.clock.world_ms + self.dice.between(20, 250);
        self.schedule.at(next_ms, Happening::Fate);
        let rates = self.plan.rates.clone();
        if self.dice.chance(rates.wall_step) {
            self.step_wall();
        }
        if !self.clock.is_far_off() && self.dice.chance(rates.far_step) {
            self.step_far();
        }
        let life = self.life;
        let Some(shell) = &mut self.shell else { return };
        if self.dice.chance(rates.kill) {
            self.schedule.at(self.clock.world_ms, Happening::End { life, ending: Ending::Kill });
        } else if self.dice.chance(rates.power_loss) {
            self.schedule.at(self.clock.world_ms, Happening::End { life, ending: Ending::PowerLoss });
        } else if self.dice.chance(rates.stop) && !shell.stopping {
            shell.stopping = true;
            self.schedule.at(self.clock.world_ms + STOP_MS_MAX, Happening::StopIsLate { life });
            self.tell(millrace_bus::Input::Stop);
        }
    }

    fn step_wall(&mut self) {
        let by_ms = self.dice.between(0, 4000) as i64 - 2000;
        if (self.wall_shift_ms + by_ms).abs() <= WALL_SHIFT_MS_MAX {
            self.wall_shift_ms += by_ms;
            self.faults.add(Fault::WallStep);
            self.clock.step_wall(by_ms);
            self.note(&format!("! the wall clock steps by {by_ms} ms"));
        }
    }

    /// Sets the wall clock far off for a moment.
    fn step_far(&mut self) {
        let (far_ms, lasts_ms) = draw_far(&mut self.dice);
        self.faults.add(Fault::FarStep);
        self.clock.set_far(far_ms);
        self.note(&format!("! the wall clock is off by {far_ms} ms"));
        self.schedule.at(self.clock.world_ms + lasts_ms, Happening::ClockReturns);
        // A server that starts meanwhile believes the wrong clock.
        if self.shell.is_some() && self.dice.chance(500) {
            let (life, ending) = (self.life, Ending::Kill);
            self.schedule.at(self.clock.world_ms, Happening::End { life, ending });
        }
    }

    pub(super) fn clock_returns(&mut self) {
        self.clock.set_far(0);
        self.note("! the wall clock is right again");
    }

    /// Ends the faults. Actors that misbehaved make up for it, and every group gets one member that never misbehaved.
    pub(super) fn calm_down(&mut self) {
        self.note("! calm");
        self.desk.calm = true;
        self.calm_since_ms = Some(self.clock.world_ms);
        self.reform_everyone();
        self.hire_replacements();
        self.do_deeds();
    }

    pub(super) fn finish_if_done(&mut self) {
        let settled = self.calm_since_ms.is_some_and(|since_ms| self.clock.world_ms > since_ms + 1000);
        self.finished = settled
            && !self.facts.ending
            && self.publishers.iter().all(crate::actor::publisher::Publisher::is_done)
            && self.facts.ledger.due.is_empty()
            && unfinished(&self.facts).is_none();
    }

    pub(super) fn first_consumer(&self) -> ActorId {
        ActorId(1 + self.publishers.len())
    }
}
