//! The one disk of all processes: commits that apply, fail, or succeed without an answer, and which processes learn of
//! them.

use millrace_claims::{Input, Token};
use millrace_model::{Batch, Op, Outcome};

use super::record::{self, violation};
use super::{ClaimsWorld, Happening};
use crate::check::Violation;
use crate::fault::Fault;

impl ClaimsWorld {
    /// Applies a commit. The disk does its part even if nobody waits for it any more.
    pub(super) fn applies(
        &mut self,
        at: usize,
        life: u64,
        token: Token,
        batch: &Batch,
    ) -> Result<(), Violation> {
        let alive = self.alive(at, life);
        // A process that died may not have handed the commit over to the disk.
        if !alive && self.dice.chance(500) {
            return Ok(());
        }
        let fails = alive && !self.calm && self.dice.chance(self.plan.commit_fails);
        if fails && self.dice.chance(500) {
            self.faults.add(Fault::CommitFailed);
            return self.report(at, life, Input::Failed { reason: "the disk".into() });
        }
        let outcome = self.commit(at, life, batch)?;
        if fails {
            self.faults.add(Fault::CommitFailed);
            return self.report(at, life, Input::Failed { reason: "the disk, after writing".into() });
        }
        self.report(at, life, Input::Committed { token, outcome })
    }

    pub(super) fn commit(&mut self, at: usize, life: u64, batch: &Batch) -> Result<Outcome, Violation> {
        let session = self.processes.get(at).map_or("nobody", |process| process.session());
        // Checked before the commit, reported only if the batch was not refused.
        let held = record::held(session, batch, self.disk.store());
        let outcomes = self.disk.commit(std::slice::from_ref(batch));
        let outcome = outcomes.ok().and_then(|mut outcomes| outcomes.pop());
        let outcome = outcome.ok_or_else(|| violation("restores", "the store gave no answer".into()))?;
        if let Outcome::Done(done) = &outcome {
            held?;
            self.record.applied(&self.plan, (at, life), batch, done)?;
            if batch.ops.iter().any(|op| matches!(op, Op::Trim { .. })) {
                self.faults.add(Fault::Trimmed);
                self.note("a stream is trimmed");
            }
            if !done.appended.is_empty() {
                self.news(at);
            }
        }
        Ok(outcome)
    }

    fn report(&mut self, at: usize, life: u64, input: Input) -> Result<(), Violation> {
        let at_ms = self.clock.world_ms + self.dice.below(5);
        self.schedule.at(at_ms, Happening::Report { process: at, life, input: Box::new(input) });
        Ok(())
    }

    /// Tells other processes of a commit. They sometimes miss one until they poll.
    fn news(&mut self, by: usize) {
        for process in (0..self.processes.len()).filter(|process| *process != by) {
            if self.dice.chance(700) {
                let (life, at_ms) = (self.processes[process].life, self.clock.world_ms + self.dice.below(10));
                let input = Box::new(Input::News { topics: None });
                self.schedule.at(at_ms, Happening::Report { process, life, input });
            }
        }
    }
}
