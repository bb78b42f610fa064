//! Commits of handlers, while they run. They do not wait for the shared commit: a commit is durable when it returns.

use millrace_model::{Now, Op, Outcome, RunMark, Ticket};

use crate::commits::batch_builder::{Cause, CommitContext, commit_batch, fits};
use crate::endings::conflict::CommitChecks;
use crate::interface::error::CommitError;
use crate::interface::input::{RunId, StateChanges};
use crate::interface::spec::OutEvent;
use crate::requests::PendingCommit;
use crate::running::last_commit::{RidingClaim, add_ack};
use crate::running::run::DeferredInput;
use crate::worker::Worker;

/// A handler's commit that is under way.
#[derive(Debug)]
pub(crate) struct HandlerCommit {
    run: RunId,
    next: Ticket,
    with_event: bool,
    /// The commit carries the acknowledgement.
    last: bool,
    checks: CommitChecks,
    ops: Vec<Op>,
    claim: Option<RidingClaim>,
}

impl HandlerCommit {
    pub(crate) fn run(&self) -> RunId {
        self.run
    }
}

impl Worker {
    /// A handler's `commit()`, or its `commit_and_ack()` if `emitted` is given.
    pub(crate) fn handler_commit(
        &mut self,
        now: Now,
        run: RunId,
        changes: StateChanges,
        emitted: Option<Vec<OutEvent>>,
    ) {
        if let Some(reason) = self.session.failure() {
            let reason = reason.to_owned();
            return self.requests.answer(run, Err(CommitError::StorageFailed { reason }));
        }
        // A handler that was cut off may commit long after its run has ended.
        let Some(active) = self.runs.get_mut(run) else {
            let error = self.hanging.late_commit_error(run);
            return self.requests.answer(run, Err(error));
        };
        if let Some(error) = active.timer().cut_error() {
            return self.requests.answer(run, Err(error));
        }
        if active.is_busy() {
            return active.defer(DeferredInput::Commit(Box::new(changes), emitted));
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
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else {
            return Err(CommitError::LeaseExpired);
        };
        if active.is_acked() {
            return Err(CommitError::Acknowledged);
        }
        if !active.ticket().is_held(now.wall) {
            return Err(CommitError::LeaseExpired);
        }
        let context = CommitContext {
            namespace: &self.identity.namespace,
            topics: self.topics.known(),
            max_event_chain_depth: self.config.max_event_chain_depth,
            max_batch_size: self.config.max_batch_size,
        };
        let (handler, ordinal) = (self.handlers[active.handler()].id(), active.ordinal());
        let cause = Cause::Handler { event: active.event(), handler, ordinal };
        let (with_event, fresh) = (changes.event.is_some(), active.is_fresh_step());
        let checks = CommitChecks::of(&changes);
        let mut batch = commit_batch(&context, cause, changes, fresh, (now, &mut self.elapsed), nonce)?;
        let mut next = active.ticket().clone();
        // Only an unmarked row is changed: a row marked by its claim is not rewritten for the mark alone.
        if next.row.run == RunMark::Unknown {
            next.row.run = RunMark::Started;
        }
        if with_event && fresh {
            next.row.steps = next.row.steps.max(ordinal.saturating_add(1));
        }
        if batch.ops.is_empty() && ack.is_none() {
            if with_event {
                active.count_step();
            }
            self.requests.answer(run, Ok(None));
            return Ok(());
        }
        match ack {
            Some(ack) => add_ack(&mut batch, ack)?,
            None => batch.checks.push(active.ticket().check()),
        }
        let ops = batch.ops.clone();
        // A last commit ends the claim: its row must not be written again.
        if !last && next != *active.ticket() {
            batch.ops.push(next.put());
            fits(&batch)?;
        }
        active.row_changes();
        let of = active.handler();
        let claim = if last { self.add_claim(now, of, &mut batch) } else { None };
        let commit = HandlerCommit { run, next, with_event, last, checks, ops, claim };
        self.requests.commit(PendingCommit::Handler(Box::new(commit)), batch);
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
        if is_fatal && let Some(active) = self.runs.must_get_mut(run, &self.broken) {
            active.fail(error.clone());
        }
        self.requests.answer(run, Err(error));
    }

    pub(crate) fn on_handler_commit(&mut self, now: Now, commit: HandlerCommit, outcome: Outcome) {
        let HandlerCommit { run, next, with_event, last, checks, ops, claim } = commit;
        match outcome {
            Outcome::Done(mut done) => {
                self.wake_for_appends(&ops);
                if let Some(active) = self.runs.must_get_mut(run, &self.broken) {
                    active.on_committed(next, with_event, last);
                    if last {
                        let handler = &mut self.handlers[active.handler()];
                        handler.on_acked();
                        // A claim in this same commit has already seen that the event ended.
                        if claim.is_none() {
                            handler.want_next_of_key();
                        }
                    }
                }
                self.requests.answer(run, Ok(done.state.take()));
                self.on_riding_claim(now, claim, Some(done));
            }
            Outcome::Refused(refusal) => {
                self.on_riding_claim(now, claim, None);
                self.answer_error(run, checks.error(refusal));
            }
        }
        self.resume_run(now, run);
    }

    /// Nothing of the commit is written, and nothing else has changed.
    pub(crate) fn on_handler_commit_failed(&mut self, now: Now, commit: HandlerCommit, error: CommitError) {
        let HandlerCommit { run, claim, .. } = commit;
        self.on_riding_claim(now, claim, None);
        self.answer_error(run, error);
        self.resume_run(now, run);
    }
}
