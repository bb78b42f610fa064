//! Runs: starting handlers, their commits, and how they end.

use std::sync::Arc;

use millrace_model::{Claimed, Event, Mono, Now, Outcome, RunMark, Suspicion, Ticket};

use crate::claiming::handler::Handler;
use crate::commits::batch_builder::{Cause, CommitContext, commit_batch, fits};
use crate::endings::conflict::CommitChecks;
use crate::interface::effect::{Effect, Note};
use crate::interface::error::{CommitError, RunError};
use crate::interface::input::{RunId, StateChanges};
use crate::interface::spec::OutEvent;
use crate::running::last_commit::add_ack;
use crate::running::timeout::RunTimer;
use crate::worker::{Pending, Phase, Worker};

/// The error of a dead letter if no run of the handler ever returned an error.
const LOST_RUNS: &str = "every run was lost: its process ended, or its lease ran out";

#[derive(Debug)]
pub(crate) struct ActiveRun {
    pub(crate) handler: usize,
    pub(crate) ticket: Ticket,
    pub(crate) event: Arc<Event>,
    /// When the run was started.
    pub(crate) since: Mono,
    /// The handler was called. Before that, the mark of the run is being written.
    pub(crate) begun: bool,
    /// Commits with an event in this attempt. The first `row.steps` of them were stored by earlier attempts.
    ordinal: u32,
    /// The claim's row is being changed by a commit, a renewal or a mark: what the handler does meanwhile waits in
    /// `deferred`.
    pub(crate) busy: bool,
    pub(crate) deferred: Option<DeferredInput>,
    /// A failed commit after which the run cannot count as a success any more.
    pub(crate) commit_error: Option<CommitError>,
    /// The run's last commit has ended the claim: nothing more is written for this event, however the handler ends.
    pub(crate) acked: bool,
    pub(crate) timer: RunTimer,
}

impl ActiveRun {
    /// Whether the run's lease is to be renewed when it grows old.
    pub(crate) fn wants_lease(&self, now: millrace_model::Timestamp) -> bool {
        !self.busy && !self.acked && self.ticket.is_held(now)
    }

    /// Whether the row belongs to the run, and nothing is changing it now.
    pub(crate) fn may_be_marked(&self, now: Now) -> bool {
        self.begun && self.commit_error.is_none() && self.wants_lease(now.wall)
    }
}

#[derive(Debug)]
pub(crate) enum DeferredInput {
    /// With the emitted events, if this is the run's last commit.
    Commit(Box<StateChanges>, Option<Vec<OutEvent>>),
    Finished(Result<Vec<OutEvent>, RunError>),
}

/// A handler's commit that is under way.
#[derive(Debug)]
pub(crate) struct HandlerCommit {
    run: RunId,
    next: Ticket,
    with_event: bool,
    /// The commit carries the acknowledgement.
    last: bool,
    checks: CommitChecks,
    ops: Vec<millrace_model::Op>,
}

impl HandlerCommit {
    pub(crate) fn run(&self) -> RunId {
        self.run
    }
}

impl Worker {
    /// Starts queued events in the free slots, one of each handler in turn.
    pub(crate) fn start_runs(&mut self, now: Now) {
        if self.phase != Phase::Working {
            return;
        }
        if self.paused_until.is_some_and(|until| until <= now.mono) {
            self.next_iteration();
        }
        self.starts_held = false;
        while self.paused_until.is_none() && self.slots_taken() < self.config.handler_concurrency {
            if !self.has_marked() && self.hold_for_suspects(now) {
                self.starts_held = true;
                break;
            }
            let Some(at) = self.next_handler(now) else { break };
            if self.started >= self.config.max_events_per_iteration {
                if self.handlers.iter().any(|handler| handler.last_claim_full) {
                    self.next_iteration();
                    continue;
                }
                self.paused_until = Some(now.mono + self.config.event_poll_interval_ms);
                break;
            }
            if let Some(claimed) = self.handlers[at].queue.pop_front() {
                self.start_claimed(now, at, claimed);
            }
        }
        if self.runs.is_empty() && self.queued() == 0 && self.paused_until.is_none() {
            self.next_iteration();
        }
    }

    fn next_iteration(&mut self) {
        self.started = 0;
        self.paused_until = None;
        self.next_in_order = 0;
    }

    pub(crate) fn is_paused(&self, now: Now) -> bool {
        self.paused_until.is_some_and(|until| now.mono < until)
    }

    /// Whether a claim has marked an event as to be started at once: that one must start before any other.
    fn has_marked(&self) -> bool {
        self.handlers.iter().any(Handler::has_marked)
    }

    /// Returns the next handler in order that has a queued event and may begin, starting after the one that had the
    /// last turn.
    fn next_handler(&mut self, now: Now) -> Option<usize> {
        let (count, marked) = (self.order.len(), self.has_marked());
        let found = (0..count).map(|step| (self.next_in_order + step) % count).find(|position| {
            let handler = &self.handlers[self.order[*position]];
            if marked { handler.has_marked() } else { !handler.queue.is_empty() && handler.may_begin(now) }
        })?;
        self.next_in_order = (found + 1) % count;
        Some(self.order[found])
    }

    /// Starts a claimed event; a run under suspicion begins when its mark is durable. Returns `None` if the event
    /// cannot be run.
    pub(crate) fn start_claimed(&mut self, now: Now, at: usize, claimed: Claimed) -> Option<RunId> {
        let Claimed { ticket, event } = claimed;
        if self.is_stale(now, at, &ticket) {
            let action = self.give_back(now.wall, at, &ticket);
            self.handlers[at].halve_prefetch();
            self.queue_action(now, action);
            return None;
        }
        if ticket.row.attempts >= self.handlers[at].limits.max_attempts {
            let error = ticket.row.error.clone();
            let error = error.unwrap_or_else(|| LOST_RUNS.to_owned());
            let action = self.give_up(now.wall, at, &ticket, &event, ticket.row.attempts, &error);
            self.queue_lingering(now, action);
            return None;
        }
        self.started += 1;
        self.handlers[at].begin(now);
        self.run_ids += 1;
        let run = RunId(self.run_ids);
        let waits_for_mark = waits_for_mark(&ticket);
        let (since, begun, busy, acked) = (now.mono, false, false, false);
        let (ordinal, deferred, commit_error) = (0, None, None);
        // The timeout is counted from the call of the handler, in `call_handler`.
        let timer = RunTimer::new(now, None);
        let active = ActiveRun {
            handler: at,
            ticket,
            event,
            since,
            begun,
            ordinal,
            busy,
            deferred,
            commit_error,
            acked,
            timer,
        };
        self.runs.insert(run, active);
        match waits_for_mark {
            true => self.mark(now, run, RunMark::Started),
            false => self.call_handler(now, run),
        }
        Some(run)
    }

    /// Whether less than half of the lease is left, too little to start a run.
    pub(crate) fn is_stale(&self, now: Now, handler: usize, ticket: &Ticket) -> bool {
        is_stale(now, self.handlers[handler].limits.lease_ms, ticket)
    }

    /// A handler's `commit()`, or its `commit_and_ack()` if `emitted` is given.
    pub(crate) fn handler_commit(
        &mut self,
        now: Now,
        run: RunId,
        changes: StateChanges,
        emitted: Option<Vec<OutEvent>>,
    ) {
        if let Some(reason) = &self.failed {
            let result = Err(CommitError::StorageFailed { reason: reason.clone() });
            return self.effects.push(Effect::Answer { run, result });
        }
        let Some(active) = self.runs.get_mut(&run) else {
            let result = Err(self.late_commit_error(run));
            return self.effects.push(Effect::Answer { run, result });
        };
        if let Some(error) = active.timer.cut_error() {
            return self.effects.push(Effect::Answer { run, result: Err(error) });
        }
        if active.busy {
            active.deferred = Some(DeferredInput::Commit(Box::new(changes), emitted));
            return;
        }
        if let Err(error) = self.try_commit(now, run, changes, emitted) {
            self.answer_error(run, error);
        }
    }

    fn try_commit(
        &mut self,
        now: Now,
        run: RunId,
        changes: StateChanges,
        emitted: Option<Vec<OutEvent>>,
    ) -> Result<(), CommitError> {
        let nonce = self.prng.next();
        let ack = emitted.map(|emitted| self.last_ack(now, run, &emitted)).transpose()?;
        let last = ack.is_some();
        let Some(active) = self.runs.get_mut(&run) else { return Err(CommitError::LeaseExpired) };
        if active.acked {
            return Err(CommitError::Acknowledged);
        }
        if !active.ticket.is_held(now.wall) {
            return Err(CommitError::LeaseExpired);
        }
        let handler = &self.handlers[active.handler];
        let context = CommitContext {
            namespace: &self.identity.namespace,
            topics: &self.topics,
            max_event_chain_depth: self.config.max_event_chain_depth,
            max_batch_size: self.config.max_batch_size,
        };
        let cause =
            Cause::Handler { event: &active.event, handler: &handler.spec.id, ordinal: active.ordinal };
        let with_event = changes.event.is_some();
        let fresh = active.ordinal >= active.ticket.row.steps;
        let checks = CommitChecks::of(&changes);
        let mut batch = commit_batch(&context, cause, changes, fresh, (now, &mut self.elapsed), nonce)?;
        let mut next = active.ticket.clone();
        // Only an unmarked row is changed: a row marked by its claim is not rewritten for the mark alone.
        if next.row.run == RunMark::Unknown {
            next.row.run = RunMark::Started;
        }
        if with_event && fresh {
            next.row.steps = next.row.steps.max(active.ordinal.saturating_add(1));
        }
        if batch.ops.is_empty() && ack.is_none() {
            active.ordinal += u32::from(with_event);
            self.effects.push(Effect::Answer { run, result: Ok(None) });
            return Ok(());
        }
        match ack {
            Some(ack) => add_ack(&mut batch, ack)?,
            None => batch.checks.push(active.ticket.check()),
        }
        let ops = batch.ops.clone();
        // A last commit ends the claim: its row must not be written again.
        if !last && next != active.ticket {
            batch.ops.push(next.put());
            fits(&batch)?;
        }
        active.busy = true;
        let under_way = HandlerCommit { run, next, with_event, last, checks, ops };
        let token = self.token(Pending::HandlerCommit(Box::new(under_way)));
        self.effects.push(Effect::Commit { token, batch });
        Ok(())
    }

    fn answer_error(&mut self, run: RunId, error: CommitError) {
        let is_fatal = match error {
            CommitError::LeaseExpired
            | CommitError::Conflict { .. }
            | CommitError::TimedOut { .. }
            | CommitError::EventLoopLimit { .. }
            | CommitError::DelayTooLong { .. }
            | CommitError::StorageFailed { .. }
            | CommitError::Stopped => true,
            // The handler may split its commit, or read again.
            CommitError::BatchSizeExceeded { .. }
            | CommitError::TooLarge { .. }
            | CommitError::Acknowledged
            | CommitError::Refused { .. } => false,
        };
        if let Some(active) = self.runs.get_mut(&run).filter(|_| is_fatal) {
            active.commit_error.get_or_insert(error.clone());
        }
        self.effects.push(Effect::Answer { run, result: Err(error) });
    }

    pub(crate) fn on_handler_commit(&mut self, now: Now, under_way: HandlerCommit, outcome: Outcome) {
        let HandlerCommit { run, next, with_event, last, checks, ops } = under_way;
        match outcome {
            Outcome::Done(done) => {
                self.wake_for_appends(&ops);
                if let Some(active) = self.runs.get_mut(&run) {
                    active.ticket = next;
                    active.ordinal += u32::from(with_event);
                    active.acked = last;
                    // The session has read again and applied its updates to the new state.
                    active.commit_error.take_if(|error| matches!(error, CommitError::Conflict { .. }));
                    let handler = &mut self.handlers[active.handler];
                    handler.wants_claim |= last && handler.is_ordered();
                }
                self.effects.push(Effect::Answer { run, result: Ok(done.state) });
            }
            Outcome::Refused(refusal) => self.answer_error(run, checks.error(refusal)),
        }
        self.resume_run(now, run);
    }

    /// Nothing of the commit is written, and nothing else has changed.
    pub(crate) fn on_handler_commit_failed(&mut self, now: Now, run: RunId, error: CommitError) {
        self.answer_error(run, error);
        self.resume_run(now, run);
    }

    /// The row is no longer being changed: handles what the handler did meanwhile.
    pub(crate) fn resume_run(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.busy = false;
        if active.timer.is_cut() {
            return self.end_cut_run(now, run);
        }
        match active.deferred.take() {
            Some(DeferredInput::Commit(changes, emitted)) => self.handler_commit(now, run, *changes, emitted),
            Some(DeferredInput::Finished(result)) => self.on_finished(now, run, result),
            None => {}
        }
    }

    pub(crate) fn on_finished(&mut self, now: Now, run: RunId, result: Result<Vec<OutEvent>, RunError>) {
        match self.runs.get_mut(&run) {
            Some(active) if active.timer.is_cut() => {
                active.timer.returned = true;
                return;
            }
            Some(active) if active.busy => {
                active.deferred = Some(DeferredInput::Finished(result));
                return;
            }
            Some(_) => {}
            None => {
                self.on_hanging_returned(now, run);
                return;
            }
        }
        let Some(ActiveRun { handler, ticket, event, commit_error, acked, .. }) = self.runs.remove(&run)
        else {
            return;
        };
        self.handlers[handler].running -= 1;
        if acked {
            return self.ended_after_ack(handler, &event, result);
        }
        if self.failed.is_some() {
            return;
        }
        if commit_error == Some(CommitError::LeaseExpired) || !ticket.is_held(now.wall) {
            // The session that claims the event next counts this run.
            self.mark_lost(now, &ticket);
            self.handlers[handler].ready_again_at(ticket.row.due);
            self.effects.push(Effect::Note(Note::LeaseExpired { handler, event: event.id.clone() }));
            return;
        }
        if let Some(CommitError::Conflict { identity }) = commit_error {
            let action = self.run_again(now.wall, handler, &ticket, &event, identity);
            return self.queue_lingering(now, action);
        }
        let ended = match (result, commit_error) {
            (Ok(_), Some(error)) => Err(RunError::Failed(error.to_string())),
            (Ok(emitted), None) => self
                .ack(now, handler, &ticket, &event, &emitted)
                .map_err(|error| RunError::Failed(error.to_string())),
            (Err(error), _) => Err(error),
        };
        let action = match ended {
            Ok(action) => action,
            Err(error) => self.end_unsuccessful(now.wall, handler, &ticket, &event, error),
        };
        match ticket.row.suspicion {
            // Nothing else starts before the ending is durable, so it must not linger.
            Suspicion::Likely => self.queue_action(now, action),
            Suspicion::Possible | Suspicion::None => self.queue_lingering(now, action),
        }
    }

    /// Gives queued events back whose lease is growing old, before it ends, so that waiting costs no attempt.
    pub(crate) fn give_stale_back(&mut self, now: Now) {
        for at in 0..self.handlers.len() {
            if !self.handlers[at].fronts().any(|claimed| self.is_stale(now, at, &claimed.ticket)) {
                continue;
            }
            let lease_ms = self.handlers[at].limits.lease_ms;
            let stale = self.handlers[at].unqueue(|claimed| is_stale(now, lease_ms, &claimed.ticket));
            self.handlers[at].halve_prefetch();
            for claimed in stale {
                let action = self.give_back(now.wall, at, &claimed.ticket);
                self.queue_action(now, action);
            }
        }
    }

    pub(crate) fn give_all_back(&mut self, now: Now) {
        (0..self.handlers.len()).for_each(|at| self.give_queue_back(now, at));
    }

    pub(crate) fn give_queue_back(&mut self, now: Now, at: usize) {
        for claimed in self.handlers[at].unqueue(|_| true) {
            let action = self.give_back(now.wall, at, &claimed.ticket);
            self.queue_action(now, action);
        }
    }
}

fn is_stale(now: Now, lease_ms: u64, ticket: &Ticket) -> bool {
    now.wall + lease_ms / 2 > ticket.row.due
}

fn waits_for_mark(ticket: &Ticket) -> bool {
    ticket.row.suspicion > Suspicion::None && ticket.row.run == RunMark::Unknown
}
