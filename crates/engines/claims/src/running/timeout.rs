//! Runs that take too long: cut off when their timeout or the grace period of a stop is over, and recorded while they
//! hang.
//!
//! A plain function cannot be ended from outside. A run that is cut off has ended for the engine: its claim is
//! rewritten, so nothing the run still does can be committed, and another run gets its slot. Until the shell reports
//! that the function has returned, the run is hanging; `hanging_handlers_max` such runs have their slot replaced,
//! further ones keep it.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::{Event, HangingRow, Mono, Now, Timestamp, never};

use crate::interface::effect::{Effect, Note};
use crate::interface::error::{CommitError, RunError};
use crate::interface::input::RunId;
use crate::running::run::{ActiveRun, DeferredInput};
use crate::worker::Worker;

/// The times of one run.
#[derive(Debug)]
pub(crate) struct RunTimer {
    since: Timestamp,
    began: Mono,
    timeout_ms: Option<u64>,
    cut: Option<CutReason>,
    /// The function has returned although the run was cut off: the run does not hang.
    returned: bool,
    /// The run's lease is over and it has no timeout: the run keeps its slot, and a note reports it.
    overdue: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum CutReason {
    Timeout {
        timeout_ms: u64,
    },
    /// The session stops and its grace period is over.
    Stop,
}

/// A run that was cut off and whose function has not returned.
#[derive(Debug)]
pub(crate) struct HangingRun {
    handler: usize,
    event: Arc<Event>,
    since: Timestamp,
    began: Mono,
    cut: CutReason,
}

/// Runs that were cut off and have not returned yet.
#[derive(Debug, Default)]
pub(crate) struct HangingRuns(BTreeMap<RunId, HangingRun>);

impl HangingRuns {
    pub(crate) fn contains(&self, run: RunId) -> bool {
        self.0.contains_key(&run)
    }

    /// The answer to a commit of a run that has ended.
    pub(crate) fn late_commit_error(&self, run: RunId) -> CommitError {
        self.0.get(&run).map_or(CommitError::LeaseExpired, |hanging| hanging.cut.error())
    }
}

impl RunTimer {
    pub(crate) fn new(now: Now, timeout_ms: Option<u64>) -> RunTimer {
        let (since, began) = (now.wall, now.mono);
        RunTimer { since, began, timeout_ms, cut: None, returned: false, overdue: false }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// The function has returned although the run was cut off.
    pub(crate) fn on_returned(&mut self) {
        self.returned = true;
    }

    /// The answer to a commit after the run was cut off.
    pub(crate) fn cut_error(&self) -> Option<CommitError> {
        self.cut.map(CutReason::error)
    }

    fn timeout_at(&self) -> Option<Mono> {
        Some(self.began + self.timeout_ms?)
    }
}

impl CutReason {
    /// The answer to a commit after this cut.
    pub(crate) fn error(self) -> CommitError {
        match self {
            CutReason::Timeout { timeout_ms } => CommitError::TimedOut { timeout_ms },
            CutReason::Stop => CommitError::Stopped,
        }
    }
}

impl Worker {
    /// Places that are taken: those of runs, and of hanging runs beyond `hanging_handlers_max`.
    pub(crate) fn slots_taken(&self) -> usize {
        self.runs.len() + self.hanging.0.len().saturating_sub(self.config.hanging_handlers_max)
    }

    /// Called before any input is handled, so that a late answer finds its run ended.
    pub(crate) fn cut_late_runs(&mut self, now: Now) {
        if !self.session.is_live() {
            return;
        }
        let stopped = self.session.is_grace_over(now);
        let mut late: Vec<(RunId, CutReason)> = Vec::new();
        let mut overdue: Vec<RunId> = Vec::new();
        for (id, run) in self.runs.iter().filter(|(_, run)| run.is_begun() && !run.timer().is_cut()) {
            match run.timer().timeout_ms {
                Some(timeout_ms) if run.timer().timeout_at() <= Some(now.mono) => {
                    late.push((id, CutReason::Timeout { timeout_ms }));
                }
                _ if stopped => late.push((id, CutReason::Stop)),
                None if !run.timer().overdue && self.lease_is_over(now, run) => overdue.push(id),
                _ => {}
            }
        }
        for run in overdue {
            self.mark_overdue(now, run);
        }
        for (run, cut) in late {
            self.cut(now, run, cut);
        }
    }

    fn lease_is_over(&self, now: Now, run: &ActiveRun) -> bool {
        !self.config.lease_renewal && !run.is_acked() && !run.ticket().is_held(now.wall)
    }

    pub(crate) fn next_cut(&self, now: Now) -> Option<Mono> {
        let mut runs = self.runs.values().filter(|run| run.is_begun() && !run.timer().is_cut()).peekable();
        let stop_at = self.session.stop_at().filter(|_| runs.peek().is_some());
        let at = runs.filter_map(|run| match run.timer().timeout_at() {
            None if run.timer().overdue || run.is_acked() || self.config.lease_renewal => None,
            None => Some(now.mono_at(run.ticket().row.due)),
            at => at,
        });
        at.chain(stop_at).min()
    }

    fn mark_overdue(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        active.timer_mut().overdue = true;
        let (handler, event) = (active.handler(), active.event().id.clone());
        self.requests.note(Note::Overdue { handler, event });
        self.session.heartbeat_now(now);
    }

    fn cut(&mut self, now: Now, run: RunId, cut: CutReason) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        active.timer_mut().cut = Some(cut);
        self.requests.push(Effect::Cut { run });
        // Whatever the handler did while its row was being changed also comes too late.
        match active.take_deferred() {
            Some(DeferredInput::Commit(..)) => {
                self.requests.answer(run, Err(cut.error()));
            }
            Some(DeferredInput::Finished(_)) => active.timer_mut().on_returned(),
            None => {}
        }
        self.end_cut_run(now, run);
    }

    /// Ends a run that was cut off, as soon as its row is no longer being changed.
    pub(crate) fn end_cut_run(&mut self, now: Now, run: RunId) {
        if self.runs.must_get(run, &self.broken).is_none_or(ActiveRun::is_busy) {
            return;
        }
        let Some(active) = self.runs.must_remove(run, &self.broken) else { return };
        let (handler, ticket, event) = (active.handler(), active.ticket(), active.event());
        self.handlers[handler].on_run_ended(active.is_acked(), &self.broken);
        let &RunTimer { since, began, cut, returned, .. } = active.timer();
        let Some(cut) = cut else {
            never!(self.broken, "{run:?} was to end although it was not cut off");
            return;
        };
        self.session.heartbeat_now(now);
        if !returned {
            self.hanging.0.insert(run, HangingRun { handler, event: event.clone(), since, began, cut });
        }
        let replaced = returned || self.hanging.0.len() <= self.config.hanging_handlers_max;
        let id = event.id.clone();
        self.requests.note(match cut {
            CutReason::Timeout { timeout_ms } => Note::TimedOut { handler, event: id, timeout_ms, replaced },
            CutReason::Stop => Note::CutByStop { handler, event: id },
        });
        let action = match cut {
            // The run's last commit has acknowledged the event: there is nothing left to write.
            _ if active.is_acked() => return,
            // The session that claims the event next counts this attempt.
            _ if !ticket.is_held(now.wall) => return self.handlers[handler].ready_again_at(ticket.row.due),
            CutReason::Timeout { timeout_ms } => {
                self.ended.counts.timed_out += 1;
                let error = RunError::Failed(format!("no answer within {timeout_ms} ms"));
                self.end_unsuccessful(now.wall, handler, ticket, event, error)
            }
            // A run that a stop cuts short does not count as an attempt.
            CutReason::Stop => self.give_back(now.wall, handler, ticket),
        };
        self.queue_action(now, action);
    }

    /// The function of a run that was cut off has returned. Ignores other runs.
    pub(crate) fn on_hanging_returned(&mut self, now: Now, run: RunId) {
        let Some(hanging) = self.hanging.0.remove(&run) else { return };
        let HangingRun { handler, event, began, .. } = hanging;
        let after_ms = now.mono.0.saturating_sub(began.0);
        self.requests.note(Note::Returned { handler, event: event.id.clone(), after_ms });
        self.session.heartbeat_now(now);
    }

    /// Hanging and overdue runs, for the session's row: at most `handler_concurrency` plus `hanging_handlers_max`.
    pub(crate) fn hanging_rows(&self) -> Vec<HangingRow> {
        let row = |handler: usize, event: &Event, since, cut| HangingRow {
            handler: self.handlers[handler].id().clone(),
            event: event.id.clone(),
            since,
            cut_off: cut,
        };
        let cut = self.hanging.0.values().map(|run| row(run.handler, &run.event, run.since, true));
        let overdue = self.runs.values().filter(|run| run.timer().overdue);
        cut.chain(overdue.map(|run| row(run.handler(), run.event(), run.timer().since, false))).collect()
    }
}
