//! What comes from outside: events, kills, stops, clocks that step.

use millrace_claims::{Input, OutEvent, StateChanges, Topics, imperative};
use millrace_model::{JsonText, Namespace, Priority, TopicName};

use super::plan::TOPICS;
use super::record::violation;
use super::{ClaimsWorld, Happening};
use crate::check::Violation;
use crate::fault::Fault;

impl ClaimsWorld {
    pub(super) fn publish(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        let topic = TopicName::new(TOPICS[self.dice.below(2) as usize]).expect("a legal topic");
        let priority = Priority([100, 100, 100, 1, 200, 900][self.dice.below(6) as usize]);
        let event = OutEvent { priority, ..OutEvent::new(topic, JsonText::null()) };
        let changes = StateChanges { event: Some(event), ..StateChanges::default() };
        let (now, nonce) = (self.now(usize::MAX).wall, self.dice.draw());
        let (namespace, topics) = (Namespace::default(), Topics::default());
        let batch = imperative(&self.plan.config, &namespace, &topics, changes, now, nonce)
            .map_err(|error| violation("restores", error.to_string()))?;
        self.record.published += 1;
        self.commit(usize::MAX, &batch)?;
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
            // Now and then to where the next minute begins, for the schedules.
            let far = if self.dice.chance(400) { 55_000 } else { 0 };
            let by_ms = far + self.dice.below(6000) as i64 - 3000;
            self.faults.add(Fault::WallStep);
            self.clock.step_wall(by_ms);
            self.note(&format!("the wall clock steps by {by_ms} ms"));
        }
        self.schedule.at(self.clock.world_ms + 20, Happening::Fate);
    }

    /// The process is gone; another takes its place, under the same name.
    pub(super) fn ended(&mut self, at: usize) {
        self.processes[at].end();
        let at_ms = self.clock.world_ms + self.dice.between(1, 1500);
        self.schedule.at(at_ms, Happening::Start { process: at });
    }
}
