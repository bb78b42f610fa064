//! Events from outside: publishes, kills, stops, steps of the clock.

use millrace_claims::{Input, OutEvent, StateChanges, Topics, imperative};
use millrace_model::{Elapsed, JsonText, Namespace, Priority, TopicName};

use super::plan::{self, TOPICS};
use super::record::violation;
use super::{ClaimsWorld, Happening};
use crate::check::Violation;
use crate::clock::draw_far;
use crate::fault::Fault;

impl ClaimsWorld {
    pub(super) fn publish(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        let topic = TopicName::new(TOPICS[self.dice.below(2) as usize]).expect("a legal topic");
        let priority = Priority([100, 100, 100, 1, 200, 900][self.dice.below(6) as usize]);
        let key = plan::key(self.record.published * 7 / 3);
        let event = OutEvent { priority, key, ..OutEvent::new(topic, JsonText::null()) };
        let changes = StateChanges { event: Some(event), ..StateChanges::default() };
        let nonce = self.dice.draw();
        let clock = (self.clock.now(), &mut Elapsed::default());
        let (namespace, topics) = (Namespace::default(), Topics::default());
        let batch = imperative(&self.plan.config, &namespace, &topics, changes, clock, nonce)
            .map_err(|error| violation("restores", error.to_string()))?;
        self.record.published += 1;
        self.commit(usize::MAX, 0, &batch)?;
        let at_ms = self.clock.world_ms + self.dice.below(120);
        self.schedule.at(at_ms, Happening::Publish);
        Ok(())
    }

    pub(super) fn fate(&mut self) {
        if self.calm {
            return;
        }
        for at in 0..self.processes.len() {
            if self.processes[at].worker.is_some() && self.dice.chance(self.plan.kill) {
                self.faults.add(Fault::Kill);
                self.note(&format!("p{at} is killed"));
                self.ended(at);
            } else if self.dice.chance(self.plan.stops) {
                self.faults.add(Fault::Stop);
                let (life, input) = (self.processes[at].life, Box::new(Input::Stop));
                self.schedule.at(self.clock.world_ms, Happening::Report { process: at, life, input });
            }
        }
        if self.dice.chance(self.plan.wall_steps) {
            // Now and then close to the next minute, for the schedules.
            let far = if self.dice.chance(400) { 55_000 } else { 0 };
            let by_ms = far + self.dice.below(6000) as i64 - 3000;
            self.faults.add(Fault::WallStep);
            self.clock.step_wall(by_ms);
            self.note(&format!("the wall clock steps by {by_ms} ms"));
            // Every process reads the clock now: two steps in quick succession must not look like one large step, which
            // is doubted.
            for at in 0..self.processes.len() {
                self.read_clock(at);
            }
        }
        if !self.clock.is_far_off() && self.dice.chance(self.plan.far_steps) {
            self.step_far();
        }
        self.schedule.at(self.clock.world_ms + 20, Happening::Fate);
    }

    fn step_far(&mut self) {
        let (far_ms, lasts_ms) = draw_far(&mut self.dice);
        self.faults.add(Fault::FarStep);
        self.clock.set_far(far_ms);
        self.note(&format!("the wall clock is off by {far_ms} ms"));
        self.schedule.at(self.clock.world_ms + lasts_ms, Happening::ClockReturns);
    }

    pub(super) fn clock_returns(&mut self) {
        self.clock.set_far(0);
        self.note("the wall clock is right again");
    }

    /// The process has ended; another starts in its place, under the same name.
    pub(super) fn ended(&mut self, at: usize) {
        self.processes[at].end();
        let at_ms = self.clock.world_ms + self.dice.between(1, 1500);
        self.schedule.at(at_ms, Happening::Start { process: at });
    }
}
