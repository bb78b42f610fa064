//! Invariants that hold between two calls of the engine. For tests and simulation: a check reads every run and every
//! queue.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::guest::Guest;
use crate::ids::RunId;
use crate::run::RunState;
use crate::runs::Runs;
use crate::timers::{TimerKey, TimerKind};

/// An invariant that does not hold: a bug of the engine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    #[error("{run} is in the ready queue {entries} times, but should be there {expected} times")]
    ReadyEntries { run: RunId, entries: usize, expected: usize },
    #[error("{counted} runs are ready, but the engine counts {known}")]
    ReadyCount { counted: usize, known: usize },
    #[error("{run} is left in the middle of a step")]
    Stepping { run: RunId },
    #[error("{run} has an answer that neither the external queue nor the timer queue brings to it")]
    AnswerLost { run: RunId },
    #[error("the timers of the runs are {of_runs}, those of the queue {of_queue}")]
    Timers { of_runs: usize, of_queue: usize },
    #[error("{run} holds a timer that is not in the queue")]
    TimerLost { run: RunId },
    #[error("{name} is {value}, above its limit of {max}")]
    AboveLimit { name: &'static str, value: usize, max: usize },
}

impl<G: Guest> Runs<G> {
    /// Checks the invariants of the engine.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn check_invariants(&self) -> Result<(), Violation> {
        self.check_limits()?;
        self.check_ready()?;
        self.check_answers()?;
        self.check_timers()
    }

    fn check_limits(&self) -> Result<(), Violation> {
        let within = |name, value, max| match value <= max {
            true => Ok(()),
            false => Err(Violation::AboveLimit { name, value, max }),
        };
        within("runs_max", self.table.len(), self.limits.runs_max)?;
        within("external_max", self.external.len(), self.limits.external_max)?;
        within("timers_max", self.timers.len(), self.limits.timers_max)?;
        self.table
            .iter()
            .try_for_each(|run| within("run_timers_max", run.wakes.len(), self.limits.run_timers_max))
    }

    fn check_ready(&self) -> Result<(), Violation> {
        let mut queued: Vec<RunId> = self.ready.iter().copied().collect();
        queued.sort_unstable();
        let mut ready = 0;
        for run in self.table.iter() {
            if matches!(run.state, RunState::Stepping) {
                return Err(Violation::Stepping { run: run.id });
            }
            let from = queued.partition_point(|id| *id < run.id);
            let entries = queued[from..].iter().take_while(|id| **id == run.id).count();
            let expected = usize::from(run.is_ready());
            if entries != expected {
                return Err(Violation::ReadyEntries { run: run.id, entries, expected });
            }
            ready += expected;
        }
        match ready == self.ready_runs {
            true => Ok(()),
            false => Err(Violation::ReadyCount { counted: ready, known: self.ready_runs }),
        }
    }

    fn check_answers(&self) -> Result<(), Violation> {
        let coming = self.external.iter().filter(|external| external.kind == TimerKind::Answer);
        let coming: BTreeSet<_> = coming.map(|external| external.call).collect();
        let lost = self.table.iter().find(|run| match run.state {
            RunState::Answered { timer: None, .. } => !coming.contains(&run.call()),
            _ => false,
        });
        match lost {
            None => Ok(()),
            Some(run) => Err(Violation::AnswerLost { run: run.id }),
        }
    }

    fn check_timers(&self) -> Result<(), Violation> {
        let queue: BTreeSet<TimerKey> = self.timers.iter().map(|(key, _)| *key).collect();
        let mut of_runs = 0;
        for run in self.table.iter() {
            let answer = match run.state {
                RunState::Answered { timer, .. } => timer,
                _ => None,
            };
            for key in run.wakes.iter().chain(&run.deadline).chain(&answer) {
                of_runs += 1;
                if !queue.contains(key) {
                    return Err(Violation::TimerLost { run: run.id });
                }
            }
        }
        match of_runs == queue.len() {
            true => Ok(()),
            false => Err(Violation::Timers { of_runs, of_queue: queue.len() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_model::Mono;

    use super::*;
    use crate::{NewRun, RunsLimits, ScriptLine, ScriptedGuest};

    #[test]
    fn a_timer_that_belongs_to_no_run_is_noticed() {
        let mut runs = Runs::new(RunsLimits::default());
        let guest = ScriptedGuest::new(1, vec![ScriptLine::Done(0)]);
        let start = NewRun { guest, operations: Arc::from([]), deadline: Some(Mono(9)) };
        let run = runs.start(Mono(0), start).unwrap();
        assert_eq!(runs.check_invariants(), Ok(()));
        runs.table.get_mut(run).unwrap().deadline = None;
        assert_eq!(runs.check_invariants(), Err(Violation::Timers { of_runs: 0, of_queue: 1 }));
    }
}
