//! Runs that take too long: cut off when their timeout or the grace period of a stop is over, and recorded while they
//! hang.
//!
//! A plain function cannot be ended from outside. A run that is cut off has ended for the engine: its claim is
//! rewritten, so nothing the run still does can be committed, and another run gets its slot. Until the shell reports
//! that the function has returned, the run is hanging; `hanging_handlers_max` such runs have their slot replaced,
//! further ones keep it.

use millrace_model::{Event, HangingRow, Mono, Now, Timestamp};

use crate::interface::effect::{Effect, Note};
use crate::interface::error::{CommitError, RunError};
use crate::interface::input::RunId;
use crate::running::run::{ActiveRun, DeferredInput};
use crate::worker::{Phase, Worker};

/// The times of one run.
#[derive(Debug)]
pub(crate) struct RunTimer {
    since: Timestamp,
    began: Mono,
    timeout_ms: Option<u64>,
    cut: Option<CutReason>,
    /// The function has returned although the run was cut off: the run does not hang.
    pub(crate) returned: bool,
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
    event: std::sync::Arc<Event>,
    since: Timestamp,
    began: Mono,
    cut: CutReason,
}

impl RunTimer {
    pub(crate) fn new(now: Now, timeout_ms: Option<u64>) -> RunTimer {
        let (since, began) = (now.wall, now.mono);
        RunTimer { since, began, timeout_ms, cut: None, returned: false, overdue: false }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
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
        self.runs.len() + self.hanging.len().saturating_sub(self.config.hanging_handlers_max)
    }

    /// Called before any input is handled, so that a late answer finds its run ended.
    pub(crate) fn cut_late_runs(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Working | Phase::Stopping | Phase::Closing) {
            return;
        }
        let stopped = self.phase != Phase::Working && self.stop_at.is_some_and(|at| at <= now.mono);
        let mut late: Vec<(RunId, CutReason)> = Vec::new();
        let mut overdue: Vec<RunId> = Vec::new();
        for (id, run) in self.runs.iter().filter(|(_, run)| run.begun && !run.timer.is_cut()) {
            match run.timer.timeout_ms {
                Some(timeout_ms) if run.timer.timeout_at() <= Some(now.mono) => {
                    late.push((*id, CutReason::Timeout { timeout_ms }));
                }
                _ if stopped => late.push((*id, CutReason::Stop)),
                None if !run.timer.overdue && self.lease_is_over(now, run) => overdue.push(*id),
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
        !self.config.lease_renewal && !run.acked && !run.ticket.is_held(now.wall)
    }

    pub(crate) fn next_cut(&self, now: Now) -> Option<Mono> {
        let mut runs = self.runs.values().filter(|run| run.begun && !run.timer.is_cut()).peekable();
        let stop_at = self.stop_at.filter(|_| runs.peek().is_some());
        let at = runs.filter_map(|run| match run.timer.timeout_at() {
            None if run.timer.overdue || run.acked || self.config.lease_renewal => None,
            None => Some(now.mono_at(run.ticket.row.due)),
            at => at,
        });
        at.chain(stop_at).min()
    }

    fn mark_overdue(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.timer.overdue = true;
        let (handler, event) = (active.handler, active.event.id.clone());
        self.effects.push(Effect::Note(Note::Overdue { handler, event }));
        self.heartbeat_at = now.mono;
    }

    fn cut(&mut self, now: Now, run: RunId, cut: CutReason) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.timer.cut = Some(cut);
        self.effects.push(Effect::Cut { run });
        // Whatever the handler did while its row was being changed also comes too late.
        match active.deferred.take() {
            Some(DeferredInput::Commit(..)) => {
                self.effects.push(Effect::Answer { run, result: Err(cut.error()) });
            }
            Some(DeferredInput::Finished(_)) => active.timer.returned = true,
            None => {}
        }
        self.end_cut_run(now, run);
    }

    /// Ends a run that was cut off, as soon as its row is no longer being changed.
    pub(crate) fn end_cut_run(&mut self, now: Now, run: RunId) {
        if self.runs.get(&run).is_none_or(|active| active.busy) {
            return;
        }
        let Some(ActiveRun { handler, ticket, event, timer, acked, .. }) = self.runs.remove(&run) else {
            return;
        };
        let Some(cut) = timer.cut else { return };
        self.handlers[handler].running -= 1;
        self.heartbeat_at = now.mono;
        if !timer.returned {
            let (since, began) = (timer.since, timer.began);
            self.hanging.insert(run, HangingRun { handler, event: event.clone(), since, began, cut });
        }
        let replaced = timer.returned || self.hanging.len() <= self.config.hanging_handlers_max;
        let id = event.id.clone();
        self.effects.push(Effect::Note(match cut {
            CutReason::Timeout { timeout_ms } => Note::TimedOut { handler, event: id, timeout_ms, replaced },
            CutReason::Stop => Note::CutByStop { handler, event: id },
        }));
        let action = match cut {
            // The run's last commit has acknowledged the event: there is nothing left to write.
            _ if acked => return,
            // The session that claims the event next counts this attempt.
            _ if !ticket.is_held(now.wall) => return self.handlers[handler].ready_again_at(ticket.row.due),
            CutReason::Timeout { timeout_ms } => {
                self.counts.timed_out += 1;
                let error = RunError::Failed(format!("no answer within {timeout_ms} ms"));
                self.end_unsuccessful(now.wall, handler, &ticket, &event, error)
            }
            // A run that a stop cuts short does not count as an attempt.
            CutReason::Stop => self.give_back(now.wall, handler, &ticket),
        };
        self.queue_action(now, action);
    }

    /// The function of a run that was cut off has returned. Returns whether there is such a run.
    pub(crate) fn on_hanging_returned(&mut self, now: Now, run: RunId) -> bool {
        let Some(hanging) = self.hanging.remove(&run) else { return false };
        let HangingRun { handler, event, began, .. } = hanging;
        let after_ms = now.mono.0.saturating_sub(began.0);
        self.effects.push(Effect::Note(Note::Returned { handler, event: event.id.clone(), after_ms }));
        self.heartbeat_at = now.mono;
        true
    }

    /// The answer to a commit of a run that has ended.
    pub(crate) fn late_commit_error(&self, run: RunId) -> CommitError {
        self.hanging.get(&run).map_or(CommitError::LeaseExpired, |hanging| hanging.cut.error())
    }

    /// Hanging and overdue runs, for the session's row: at most `handler_concurrency` plus `hanging_handlers_max`.
    pub(crate) fn hanging_rows(&self) -> Vec<HangingRow> {
        let row = |handler: usize, event: &Event, since, cut| HangingRow {
            handler: self.handlers[handler].spec.id.clone(),
            event: event.id.clone(),
            since,
            cut_off: cut,
        };
        let cut = self.hanging.values().map(|run| row(run.handler, &run.event, run.since, true));
        let overdue = self.runs.values().filter(|run| run.timer.overdue);
        cut.chain(overdue.map(|run| row(run.handler, &run.event, run.timer.since, false))).collect()
    }
}
