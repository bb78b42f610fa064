//! Carries out what a worker asks of its world, and lets its handlers go on.

use millrace_claims::{Effect, Input, RunId, Token};
use millrace_model::{HandlerOrder, keys};

use super::process::{self, Step};
use super::record::violation;
use super::{ClaimsWorld, Happening, counter, plan};
use crate::check::Violation;
use crate::fault::Fault;

impl ClaimsWorld {
    pub(super) fn effect(&mut self, at: usize, mut effect: Effect) -> Result<(), Violation> {
        let (life, soon) = (self.processes[at].life, self.clock.world_ms + 1);
        if let Some(batch) = self.saboteur.effect(at, &mut effect, self.disk.store()) {
            // No worker ever uses this token: the answer is ignored.
            let (token, batch) = (Token(0), Box::new(batch));
            self.schedule.at(soon, Happening::CommitApplies { process: at, life, token, batch });
        }
        match effect {
            Effect::Commit { token, batch } => {
                if batch.bytes() > millrace_model::BATCH_BYTES_MAX {
                    return Err(violation("batches_fit", format!("p{at} makes {} bytes", batch.bytes())));
                }
                let slow = !self.calm && self.dice.chance(self.plan.commit_slow);
                if slow {
                    self.faults.add(Fault::CommitSlow);
                }
                let most_ms = if slow { 2 * self.plan.config.event_claim_lease_ms } else { 15 };
                let at_ms = soon + self.dice.below(most_ms);
                let batch = Box::new(batch);
                self.schedule.at(at_ms, Happening::CommitApplies { process: at, life, token, batch });
            }
            Effect::Read { token, query } => {
                let fails = !self.calm && self.dice.chance(self.plan.look_fails);
                if fails {
                    self.faults.add(Fault::ReadFailed);
                }
                let result = (!fails).then(|| process::read(self.disk.store(), &query));
                let input = Box::new(Input::ReadDone { token, result });
                let at_ms = soon + self.dice.below(10);
                self.schedule.at(at_ms, Happening::Report { process: at, life, input });
            }
            Effect::Run(run) => {
                if run.attempt > self.plan.config.event_max_attempts {
                    let detail = format!("p{at} tries {} for the {}th time", run.event.id, run.attempt);
                    return Err(violation("gives_up", detail));
                }
                self.note(&format!("p{at} runs h{} {} attempt {}", run.handler, run.event.id, run.attempt));
                let spec = &self.plan.handlers[run.handler];
                if spec.settings.order == Some(HandlerOrder::Key) {
                    self.record.begins_in_order(&spec.id, &run.event)?;
                }
                let place = keys::finished(&run.event.stream, run.event.offset, &spec.id);
                self.record.run_starts.began((at, life), place);
                self.begin_run(at, run);
            }
            // The handlers here are plain functions: they go on until they return.
            Effect::Cut { .. } => {}
            Effect::Answer { run, result } => {
                self.processes[at].answered(run, result.is_ok());
                self.schedule.at(soon, Happening::RunGoesOn { process: at, life, run });
            }
            Effect::Note(note) => self.note(&format!("p{at} {note:?}")),
            Effect::Stopped { .. } => self.ended(at),
        }
        Ok(())
    }

    fn begin_run(&mut self, at: usize, run: millrace_claims::HandlerRun) {
        let id = &self.plan.handlers[run.handler].id;
        let work = plan::work(self.seed, id, &run.event);
        let slow = !self.calm && self.dice.chance(self.plan.slow_runs);
        if slow {
            self.faults.add(Fault::Vanished);
        }
        let lease_ms = self.plan.config.event_claim_lease_ms;
        let last_ms = if slow { self.dice.between(lease_ms / 2, lease_ms * 3) } else { self.dice.below(60) };
        let fails_at = (!self.calm && self.dice.chance(self.plan.run_fails))
            .then(|| self.dice.below(u64::from(work.commits) + 1) as u32);
        let (life, run_id) = (self.processes[at].life, run.run);
        let counter = work.counts.then(|| counter::read(self.disk.store()));
        self.processes[at].begin_run(run, work, last_ms, fails_at, counter);
        let at_ms = self.clock.world_ms + 1 + self.dice.below(20);
        self.schedule.at(at_ms, Happening::RunGoesOn { process: at, life, run: run_id });
    }

    pub(super) fn run_goes_on(&mut self, at: usize, run: RunId) -> Result<(), Violation> {
        let life = self.processes[at].life;
        match self.processes[at].next_step(run, &self.plan.handlers) {
            Some(Step::Wait(ms)) => {
                let at_ms = self.clock.world_ms + ms;
                self.schedule.at(at_ms, Happening::RunGoesOn { process: at, life, run });
            }
            Some(Step::Say(input)) => return self.input(at, *input),
            Some(Step::Die) => {
                self.faults.add(Fault::HandlerKill);
                self.note(&format!("p{at} dies of its handler"));
                self.ended(at);
            }
            None => {}
        }
        Ok(())
    }
}
