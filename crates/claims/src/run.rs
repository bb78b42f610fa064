//! Runs: starting handlers, their commits, and how they end.

use std::sync::Arc;

use millrace_model::{Event, Now, Outcome, Ticket};

use crate::build::{Cause, Setting, commit_batch, fits};
use crate::effect::{Effect, Note, Run};
use crate::error::{CommitError, RunError};
use crate::input::{RunId, StateChanges};
use crate::spec::OutEvent;
use crate::worker::{Pending, Phase, Worker};

#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) handler: usize,
    pub(crate) ticket: Ticket,
    pub(crate) event: Arc<Event>,
    /// Commits with an event in this try. The first `row.steps` of them were stored by earlier tries.
    ordinal: u32,
    /// The row is being changed by a commit or a renewal: what the handler says meanwhile waits.
    pub(crate) busy: bool,
    waiting: Option<Said>,
    /// A commit that failed in a way that makes a later success of the run untrue.
    spoiled: Option<CommitError>,
}

#[derive(Debug)]
enum Said {
    Commit(StateChanges),
    Finished(Result<Vec<OutEvent>, RunError>),
}

/// A handler's commit under way.
#[derive(Debug)]
pub(crate) struct CommitUnderWay {
    run: RunId,
    next: Ticket,
    with_event: bool,
    /// The checks before this index are the handler's own.
    fence: usize,
    ops: Vec<millrace_model::Op>,
}

impl CommitUnderWay {
    pub(crate) fn run(&self) -> RunId {
        self.run
    }
}

impl Worker {
    /// Fills the free places, one event of each handler in turn.
    pub(crate) fn start_runs(&mut self, now: Now) {
        if self.phase != Phase::Working {
            return;
        }
        if self.paused_until.is_some_and(|until| until <= now.mono) {
            self.next_iteration();
        }
        while self.paused_until.is_none() && self.runs.len() < self.config.handler_concurrency {
            let Some(at) = self.whose_turn() else { break };
            if self.started >= self.config.max_events_per_iteration {
                if self.handlers.iter().any(|handler| handler.full) {
                    self.next_iteration();
                    continue;
                }
                self.paused_until = Some(now.mono + self.config.event_poll_interval_ms);
                break;
            }
            self.start_one(now, at);
        }
        if self.runs.is_empty() && self.queued() == 0 && self.paused_until.is_none() {
            self.next_iteration();
        }
    }

    fn next_iteration(&mut self) {
        self.started = 0;
        self.paused_until = None;
        self.turn = 0;
    }

    /// The next in order that has something queued, beginning after the one that had the last turn.
    fn whose_turn(&mut self) -> Option<usize> {
        let count = self.order.len();
        let found = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|place| !self.handlers[self.order[*place]].queue.is_empty())?;
        self.turn = (found + 1) % count;
        Some(self.order[found])
    }

    fn start_one(&mut self, now: Now, at: usize) {
        let Some(claimed) = self.handlers[at].queue.pop_front() else { return };
        let (ticket, event) = (claimed.ticket, claimed.event);
        if self.is_stale(now, &ticket) {
            let act = self.give_back(now.wall, at, &ticket);
            self.handlers[at].eats_less();
            return self.send(now, act);
        }
        if ticket.row.attempts >= self.config.event_max_attempts && !self.never_gives_up() {
            let error = ticket.row.error.clone();
            let error = error.unwrap_or_else(|| "the lease ran out on every try".to_owned());
            let act = self.give_up(now.wall, at, &ticket, &event, ticket.row.attempts, &error);
            return self.send_later(now, act);
        }
        self.started += 1;
        self.handlers[at].running += 1;
        self.run_ids += 1;
        let run = RunId(self.run_ids);
        self.effects.push(Effect::Run(Run {
            run,
            handler: at,
            event: event.clone(),
            attempt: ticket.row.attempts.saturating_add(1),
            lease_until: ticket.row.due,
        }));
        let active =
            Active { handler: at, ticket, event, ordinal: 0, busy: false, waiting: None, spoiled: None };
        self.runs.insert(run, active);
    }

    fn never_gives_up(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if self.config.sabotage == Some(crate::Sabotage::NeverGiveUp) {
            return true;
        }
        false
    }

    /// Too little of the lease is left for a run to be fair: every run gets at least half of it.
    pub(crate) fn is_stale(&self, now: Now, ticket: &Ticket) -> bool {
        now.wall + self.config.event_claim_lease_ms / 2 > ticket.row.due
    }

    /// A handler's `commit()`.
    pub(crate) fn handler_commit(&mut self, now: Now, run: RunId, changes: StateChanges) {
        if let Some(reason) = &self.failed {
            let result = Err(CommitError::StorageFailed { reason: reason.clone() });
            return self.effects.push(Effect::Answer { run, result });
        }
        let Some(active) = self.runs.get_mut(&run) else {
            return self.effects.push(Effect::Answer { run, result: Err(CommitError::LeaseExpired) });
        };
        if active.busy {
            active.waiting = Some(Said::Commit(changes));
            return;
        }
        if let Err(error) = self.try_commit(now, run, changes) {
            self.answer_error(run, error);
        }
    }

    fn try_commit(&mut self, now: Now, run: RunId, changes: StateChanges) -> Result<(), CommitError> {
        let nonce = self.draw.next();
        let Some(active) = self.runs.get_mut(&run) else { return Err(CommitError::LeaseExpired) };
        if !active.ticket.is_held(now.wall) {
            return Err(CommitError::LeaseExpired);
        }
        let handler = &self.handlers[active.handler];
        let setting = Setting {
            namespace: &self.identity.namespace,
            topics: &self.topics,
            max_event_chain_depth: self.config.max_event_chain_depth,
            max_batch_size: self.config.max_batch_size,
        };
        let cause =
            Cause::Handler { event: &active.event, handler: &handler.spec.id, ordinal: active.ordinal };
        let with_event = changes.event.is_some();
        let fresh = active.ordinal >= active.ticket.row.steps;
        #[cfg(feature = "sabotage")]
        let fresh = fresh || self.config.sabotage == Some(crate::Sabotage::ForgetSteps);
        let mut batch = commit_batch(&setting, cause, changes, fresh, now.wall, nonce)?;
        let mut next = active.ticket.clone();
        if with_event && fresh {
            next.row.steps = next.row.steps.max(active.ordinal.saturating_add(1));
        }
        if batch.ops.is_empty() {
            active.ordinal += u32::from(with_event);
            self.effects.push(Effect::Answer { run, result: Ok(None) });
            return Ok(());
        }
        let fence = batch.checks.len();
        batch.checks.push(active.ticket.check());
        let ops = batch.ops.clone();
        if next != active.ticket {
            batch.ops.push(next.put());
            fits(&batch)?;
        }
        active.busy = true;
        let under_way = CommitUnderWay { run, next, with_event, fence, ops };
        let token = self.token(Pending::Commit(Box::new(under_way)));
        self.effects.push(Effect::Commit { token, batch });
        Ok(())
    }

    fn answer_error(&mut self, run: RunId, error: CommitError) {
        let spoils = match error {
            CommitError::LeaseExpired
            | CommitError::EventLoopLimit { .. }
            | CommitError::StorageFailed { .. }
            | CommitError::Stopped => true,
            // The handler may split its commit, or read again.
            CommitError::BatchSizeExceeded { .. }
            | CommitError::TooLarge { .. }
            | CommitError::Refused { .. } => false,
        };
        if let Some(active) = self.runs.get_mut(&run).filter(|_| spoils) {
            active.spoiled.get_or_insert(error.clone());
        }
        self.effects.push(Effect::Answer { run, result: Err(error) });
    }

    pub(crate) fn commit_back(&mut self, now: Now, under_way: CommitUnderWay, outcome: Outcome) {
        let CommitUnderWay { run, next, with_event, fence, ops } = under_way;
        match outcome {
            Outcome::Done(done) => {
                self.note_appends(&ops);
                if let Some(active) = self.runs.get_mut(&run) {
                    active.ticket = next;
                    active.ordinal += u32::from(with_event);
                }
                self.effects.push(Effect::Answer { run, result: Ok(done.state) });
            }
            Outcome::Refused(refusal) if refusal.check < fence => {
                let error = CommitError::Refused { check: refusal.check, found: refusal.found };
                self.answer_error(run, error);
            }
            Outcome::Refused(_) => self.answer_error(run, CommitError::LeaseExpired),
        }
        self.go_on(now, run);
    }

    /// Nothing of the commit is written, and nothing else has changed.
    pub(crate) fn commit_failed(&mut self, now: Now, run: RunId, error: CommitError) {
        self.answer_error(run, error);
        self.go_on(now, run);
    }

    /// The row is settled: what the handler said meanwhile.
    fn go_on(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.busy = false;
        match active.waiting.take() {
            Some(Said::Commit(changes)) => self.handler_commit(now, run, changes),
            Some(Said::Finished(result)) => self.finished(now, run, result),
            None => {}
        }
    }

    pub(crate) fn finished(&mut self, now: Now, run: RunId, result: Result<Vec<OutEvent>, RunError>) {
        match self.runs.get_mut(&run) {
            Some(active) if active.busy => {
                active.waiting = Some(Said::Finished(result));
                return;
            }
            Some(_) => {}
            None => return,
        }
        let Some(Active { handler, ticket, event, spoiled, .. }) = self.runs.remove(&run) else { return };
        self.handlers[handler].running -= 1;
        if self.failed.is_some() {
            return;
        }
        if spoiled == Some(CommitError::LeaseExpired) || !ticket.is_held(now.wall) {
            // Whoever claims it next counts this try.
            self.handlers[handler].expect(ticket.row.due);
            self.effects.push(Effect::Note(Note::LeaseExpired { handler, event: event.id.clone() }));
            return;
        }
        let ended = match (result, spoiled) {
            (Ok(_), Some(error)) => Err(RunError::Failed(error.to_string())),
            (Ok(emitted), None) => self
                .ack(now.wall, handler, &ticket, &event, &emitted)
                .map_err(|error| RunError::Failed(error.to_string())),
            (Err(error), _) => Err(error),
        };
        let act = match ended {
            Ok(act) => self.sabotaged(now, act),
            Err(RunError::Failed(error)) => self.release(now.wall, handler, &ticket, &event, &error),
            Err(RunError::Hopeless(error)) => {
                let attempts = ticket.row.attempts.saturating_add(1);
                self.give_up(now.wall, handler, &ticket, &event, attempts, &error)
            }
        };
        self.send_later(now, act);
    }

    #[cfg(not(feature = "sabotage"))]
    fn sabotaged(&mut self, _now: Now, act: crate::act::Act) -> crate::act::Act {
        act
    }

    #[cfg(feature = "sabotage")]
    fn sabotaged(&mut self, now: Now, mut act: crate::act::Act) -> crate::act::Act {
        if self.config.sabotage == Some(crate::Sabotage::EmitBeforeAck) && act.ops.len() > 2 {
            let batch = millrace_model::Batch {
                nonce: self.draw.next(),
                now: now.wall,
                ops: act.ops.split_off(2),
                ..Default::default()
            };
            let token = self.token(Pending::Apart);
            self.effects.push(Effect::Commit { token, batch });
        }
        act
    }

    /// Leases of running handlers, if that is wanted.
    pub(crate) fn renew_leases(&mut self, now: Now) {
        if !self.config.lease_renewal {
            return;
        }
        let old: Vec<RunId> = self
            .runs
            .iter()
            .filter(|(_, run)| !run.busy && run.ticket.is_held(now.wall) && self.is_stale(now, &run.ticket))
            .map(|(id, _)| *id)
            .collect();
        for run in old {
            let Some(active) = self.runs.get_mut(&run) else { continue };
            active.busy = true;
            let ticket = active.ticket.clone();
            let act = self.renew(now.wall, run, &ticket);
            self.send(now, act);
        }
    }

    pub(crate) fn renewed(&mut self, now: Now, run: RunId, ticket: Ticket) {
        if let Some(active) = self.runs.get_mut(&run) {
            active.ticket = ticket;
        }
        self.go_on(now, run);
    }

    pub(crate) fn renewal_refused(&mut self, now: Now, run: RunId) {
        if let Some(active) = self.runs.get_mut(&run) {
            active.spoiled.get_or_insert(CommitError::LeaseExpired);
        }
        self.go_on(now, run);
    }

    /// Queued events whose lease grows old are given back before it ends, so that waiting costs no attempt.
    pub(crate) fn give_stale_back(&mut self, now: Now) {
        for at in 0..self.handlers.len() {
            let front = self.handlers[at].queue.front();
            if !front.is_some_and(|claimed| self.is_stale(now, &claimed.ticket)) {
                continue;
            }
            let queue = std::mem::take(&mut self.handlers[at].queue);
            let (stale, fresh): (Vec<_>, Vec<_>) =
                queue.into_iter().partition(|claimed| self.is_stale(now, &claimed.ticket));
            self.handlers[at].queue = fresh.into();
            self.handlers[at].eats_less();
            for claimed in stale {
                let act = self.give_back(now.wall, at, &claimed.ticket);
                self.send(now, act);
            }
        }
    }

    pub(crate) fn give_all_back(&mut self, now: Now) {
        for at in 0..self.handlers.len() {
            for claimed in std::mem::take(&mut self.handlers[at].queue) {
                let act = self.give_back(now.wall, at, &claimed.ticket);
                self.send(now, act);
            }
        }
    }
}
