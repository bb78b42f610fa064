//! The terminal transition of a run: the only place where a run leaves the table.

use std::sync::Arc;

use crate::effect::Effect;
use crate::guest::Guest;
use crate::ids::RunId;
use crate::input::Disposition;
use crate::outcome::RunOutcome;
use crate::run::RunState;
use crate::runs::Runs;

/// Entries of ended runs that the ready queue may hold, beyond the number of live ones.
const STALE_READY_MAX: usize = 64;

impl<G: Guest> Runs<G> {
    /// Ends the run and releases everything that the engine holds for it. Drops the outcome if the run has one already:
    /// the first terminal transition wins.
    pub(crate) fn finish(&mut self, id: RunId, outcome: RunOutcome<G::Value, G::Fault>) -> Disposition {
        let Some(run) = self.table.remove(id) else { return Disposition::Dropped };
        if run.is_ready() {
            self.ready_runs -= 1;
            self.forget_ended_ready();
        }
        let call = run.call();
        run.wakes.iter().chain(&run.deadline).for_each(|key| self.timers.cancel(*key));
        match run.state {
            RunState::Waiting { .. } => self.effects.push_back(Effect::Abandon { call }),
            RunState::Answered { timer: Some(key), .. } => self.timers.cancel(key),
            _ => {}
        }
        self.effects.push_back(Effect::Release { run: id, guest: run.guest });
        match &outcome {
            RunOutcome::Value(_) => self.counters.completed += 1,
            RunOutcome::Cancelled { .. } => self.counters.cancelled += 1,
            RunOutcome::Failed(error) => {
                self.counters.failed += 1;
                self.effects.push_back(Effect::Failure { run: id, error: Arc::clone(error) });
            }
        }
        self.effects.push_back(Effect::Outcome { run: id, outcome });
        Disposition::Accepted
    }

    /// Removes entries of ended runs from the ready queue, so that a shell that starts and cancels runs without ticking
    /// does not make the queue grow. The amortised cost of a cancelled run is constant.
    fn forget_ended_ready(&mut self) {
        if self.ready.len() > 2 * self.ready_runs + STALE_READY_MAX {
            let table = &self.table;
            self.ready.retain(|id| table.get(*id).is_some());
        }
    }
}
