//! Runs that take too long: cut off when their timeout or the grace period of a stop is over, and recorded while they
//! hang.
//!
//! A plain function cannot be ended from outside. A run that is cut off has ended for the engine: its claim is
//! rewritten, so nothing the run still does can be committed, and another run gets its place. Until the shell reports
//! that the function has returned, the run is hanging; `hanging_handlers_max` such runs have their place replaced,
//! further ones keep it.

use millrace_model::{Event, HangingRow, Mono, Now, Timestamp};

use crate::effect::{Effect, Note};
use crate::error::{CommitError, RunError};
use crate::input::RunId;
use crate::run::{Active, Said};
use crate::worker::{Phase, Worker};

/// The times of one run.
#[derive(Debug)]
pub(crate) struct Watch {
    since: Timestamp,
    began: Mono,
    timeout_ms: Option<u64>,
    cut: Option<Cut>,
    /// The function has returned although the run was cut off: the run does not hang.
    pub(crate) returned: bool,
    /// The run's lease is over and it has no timeout: the run keeps its place, and a note reports it.
    overdue: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Timeout {
        timeout_ms: u64,
    },
    /// The session stops and its grace period is over.
    Stop,
}

/// A run that was cut off and whose function has not returned.
#[derive(Debug)]
pub(crate) struct Hanging {
    handler: usize,
    event: std::sync::Arc<Event>,
    since: Timestamp,
    began: Mono,
    cut: Cut,
}

impl Watch {
    pub(crate) fn new(now: Now, timeout_ms: Option<u64>) -> Watch {
        let (since, began) = (now.wall, now.mono);
        Watch { since, began, timeout_ms, cut: None, returned: false, overdue: false }
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// The answer to a commit after the run was cut off.
    pub(crate) fn cut_error(&self) -> Option<CommitError> {
        self.cut.map(Cut::error)
    }

    fn timeout_at(&self) -> Option<Mono> {
        Some(self.began + self.timeout_ms?)
    }
}

impl Cut {
    /// The answer to a commit after this cut.
    pub(crate) fn error(self) -> CommitError {
        match self {
            Cut::Timeout { timeout_ms } => CommitError::TimedOut { timeout_ms },
            Cut::Stop => CommitError::Stopped,
        }
    }
}

impl Worker {
    /// Places that are taken: those of runs, and of hanging runs beyond `hanging_handlers_max`.
    pub(crate) fn places_taken(&self) -> usize {
        self.runs.len() + self.hanging.len().saturating_sub(self.config.hanging_handlers_max)
    }

    /// Called before any input is handled, so that a late answer finds its run ended.
    pub(crate) fn watch_runs(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Working | Phase::Stopping | Phase::Leaving) {
            return;
        }
        let stopped = self.phase != Phase::Working && self.stop_at.is_some_and(|at| at <= now.mono);
        let mut late: Vec<(RunId, Cut)> = Vec::new();
        let mut overdue: Vec<RunId> = Vec::new();
        for (id, run) in self.runs.iter().filter(|(_, run)| run.begun && !run.watch.is_cut()) {
            match run.watch.timeout_ms {
                Some(timeout_ms) if run.watch.timeout_at() <= Some(now.mono) => {
                    late.push((*id, Cut::Timeout { timeout_ms }));
                }
                _ if stopped => late.push((*id, Cut::Stop)),
                None if !run.watch.overdue && self.lease_is_over(now, run) => overdue.push(*id),
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

    fn lease_is_over(&self, now: Now, run: &Active) -> bool {
        !self.config.lease_renewal && !run.acked && !run.ticket.is_held(now.wall)
    }

    pub(crate) fn next_cut(&self, now: Now) -> Option<Mono> {
        let mut runs = self.runs.values().filter(|run| run.begun && !run.watch.is_cut()).peekable();
        let stop_at = self.stop_at.filter(|_| runs.peek().is_some());
        let at = runs.filter_map(|run| match run.watch.timeout_at() {
            None if run.watch.overdue || run.acked || self.config.lease_renewal => None,
            None => Some(now.mono_at(run.ticket.row.due)),
            at => at,
        });
        at.chain(stop_at).min()
    }

    fn mark_overdue(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.watch.overdue = true;
        let (handler, event) = (active.handler, active.event.id.clone());
        self.effects.push(Effect::Note(Note::Overdue { handler, event }));
        self.heartbeat_at = now.mono;
    }

    fn cut(&mut self, now: Now, run: RunId, cut: Cut) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.watch.cut = Some(cut);
        self.effects.push(Effect::Cut { run });
        // Whatever the handler did while its row was being changed also comes too late.
        match active.waiting.take() {
            Some(Said::Commit(..)) => {
                self.effects.push(Effect::Answer { run, result: Err(cut.error()) });
            }
            Some(Said::Finished(_)) => active.watch.returned = true,
            None => {}
        }
        self.end_cut(now, run);
    }

    /// Ends a run that was cut off, as soon as its row is no longer being changed.
    pub(crate) fn end_cut(&mut self, now: Now, run: RunId) {
        if self.runs.get(&run).is_none_or(|active| active.busy) {
            return;
        }
        let Some(Active { handler, ticket, event, watch, acked, .. }) = self.runs.remove(&run) else {
            return;
        };
        let Some(cut) = watch.cut else { return };
        self.handlers[handler].running -= 1;
        self.heartbeat_at = now.mono;
        if !watch.returned {
            let (since, began) = (watch.since, watch.began);
            self.hanging.insert(run, Hanging { handler, event: event.clone(), since, began, cut });
        }
        let replaced = watch.returned || self.hanging.len() <= self.config.hanging_handlers_max;
        let id = event.id.clone();
        self.effects.push(Effect::Note(match cut {
            Cut::Timeout { timeout_ms } => Note::TimedOut { handler, event: id, timeout_ms, replaced },
            Cut::Stop => Note::CutByStop { handler, event: id },
        }));
        let act = match cut {
            // The run's last commit has acknowledged the event: there is nothing left to write.
            _ if acked => return,
            // The session that claims the event next counts this attempt.
            _ if !ticket.is_held(now.wall) => return self.handlers[handler].ready_again_at(ticket.row.due),
            Cut::Timeout { timeout_ms } => {
                self.counts.timed_out += 1;
                let error = RunError::Failed(format!("no answer within {timeout_ms} ms"));
                self.end_unsuccessful(now.wall, handler, &ticket, &event, error)
            }
            // A run that a stop cuts short does not count as an attempt.
            Cut::Stop => self.give_back(now.wall, handler, &ticket),
        };
        self.send(now, act);
    }

    /// The function of a run that was cut off has returned. Returns whether there is such a run.
    pub(crate) fn returned(&mut self, now: Now, run: RunId) -> bool {
        let Some(hanging) = self.hanging.remove(&run) else { return false };
        let Hanging { handler, event, began, .. } = hanging;
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
        let overdue = self.runs.values().filter(|run| run.watch.overdue);
        cut.chain(overdue.map(|run| row(run.handler, &run.event, run.watch.since, false))).collect()
    }
}
