//! Runs: starting handlers, their commits, and how they end.

use std::sync::Arc;

use millrace_model::{Claimed, Event, Mono, Now, Outcome, RunMark, Suspicion, Ticket};

use crate::build::{Cause, Setting, commit_batch, fits};
use crate::conflict::CommitChecks;
use crate::effect::{Effect, Note};
use crate::error::{CommitError, RunError};
use crate::handler::Handler;
use crate::input::{RunId, StateChanges};
use crate::last_commit::add_ack;
use crate::spec::OutEvent;
use crate::timeout::Watch;
use crate::worker::{Pending, Phase, Worker};

/// The error of a dead letter if no run of the handler ever returned an error.
const LOST_RUNS: &str = "every run was lost: its process ended, or its lease ran out";

#[derive(Debug)]
pub(crate) struct Active {
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
    /// `waiting`.
    pub(crate) busy: bool,
    pub(crate) waiting: Option<Said>,
    /// A failed commit after which the run cannot count as a success any more.
    pub(crate) spoiled: Option<CommitError>,
    /// The run's last commit has ended the claim: nothing more is written for this event, however the handler ends.
    pub(crate) acked: bool,
    pub(crate) watch: Watch,
}

impl Active {
    /// Whether the run's lease is to be renewed when it grows old.
    pub(crate) fn wants_lease(&self, now: millrace_model::Timestamp) -> bool {
        !self.busy && !self.acked && self.ticket.is_held(now)
    }

    /// Whether the row belongs to the run, and nothing is changing it now.
    pub(crate) fn may_be_marked(&self, now: Now) -> bool {
        self.begun && self.spoiled.is_none() && self.wants_lease(now.wall)
    }
}

#[derive(Debug)]
pub(crate) enum Said {
    /// With the emitted events, if this is the run's last commit.
    Commit(Box<StateChanges>, Option<Vec<OutEvent>>),
    Finished(Result<Vec<OutEvent>, RunError>),
}

/// A handler's commit that is under way.
#[derive(Debug)]
pub(crate) struct CommitUnderWay {
    run: RunId,
    next: Ticket,
    with_event: bool,
    /// The commit carries the acknowledgement.
    last: bool,
    checks: CommitChecks,
    ops: Vec<millrace_model::Op>,
}

impl CommitUnderWay {
    pub(crate) fn run(&self) -> RunId {
        self.run
    }
}

impl Worker {
    /// Starts queued events in the free places, one of each handler in turn.
    pub(crate) fn start_runs(&mut self, now: Now) {
        if self.phase != Phase::Working {
            return;
        }
        if self.paused_until.is_some_and(|until| until <= now.mono) {
            self.next_iteration();
        }
        self.holding = false;
        while self.paused_until.is_none() && self.places_taken() < self.config.handler_concurrency {
            if !self.has_marked() && self.hold_for_suspects(now) {
                self.holding = true;
                break;
            }
            let Some(at) = self.whose_turn(now) else { break };
            if self.started >= self.config.max_events_per_iteration {
                if self.handlers.iter().any(|handler| handler.full) {
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
        self.turn = 0;
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
    fn whose_turn(&mut self, now: Now) -> Option<usize> {
        let (count, marked) = (self.order.len(), self.has_marked());
        let found = (0..count).map(|step| (self.turn + step) % count).find(|place| {
            let handler = &self.handlers[self.order[*place]];
            if marked { handler.has_marked() } else { !handler.queue.is_empty() && handler.may_begin(now) }
        })?;
        self.turn = (found + 1) % count;
        Some(self.order[found])
    }

    /// Starts a claimed event; a run under suspicion begins when its mark is durable. Returns `None` if the event
    /// cannot be run.
    pub(crate) fn start_claimed(&mut self, now: Now, at: usize, claimed: Claimed) -> Option<RunId> {
        let Claimed { ticket, event } = claimed;
        if self.is_stale(now, at, &ticket) {
            let act = self.give_back(now.wall, at, &ticket);
            self.handlers[at].halve_prefetch();
            self.send(now, act);
            return None;
        }
        if ticket.row.attempts >= self.handlers[at].limits.max_attempts && !self.never_gives_up() {
            let error = ticket.row.error.clone();
            let error = error.unwrap_or_else(|| LOST_RUNS.to_owned());
            let act = self.give_up(now.wall, at, &ticket, &event, ticket.row.attempts, &error);
            self.send_later(now, act);
            return None;
        }
        self.started += 1;
        self.handlers[at].begin(now);
        self.run_ids += 1;
        let run = RunId(self.run_ids);
        let waits_for_mark = self.waits_for_mark(&ticket);
        let (since, begun, busy, acked) = (now.mono, false, false, false);
        let (ordinal, waiting, spoiled) = (0, None, None);
        // The timeout is counted from the call of the handler, in `begin_run`.
        let watch = Watch::new(now, None);
        let active = Active {
            handler: at,
            ticket,
            event,
            since,
            begun,
            ordinal,
            busy,
            waiting,
            spoiled,
            acked,
            watch,
        };
        self.runs.insert(run, active);
        match waits_for_mark {
            true => self.mark(now, run, RunMark::Started),
            false => self.begin_run(now, run),
        }
        Some(run)
    }

    fn waits_for_mark(&self, ticket: &Ticket) -> bool {
        #[cfg(feature = "sabotage")]
        if self.config.sabotage == Some(crate::Sabotage::TrustSuspects) {
            return false;
        }
        ticket.row.suspicion > Suspicion::None && ticket.row.run == RunMark::Unknown
    }

    fn never_gives_up(&self) -> bool {
        #[cfg(feature = "sabotage")]
        if self.config.sabotage == Some(crate::Sabotage::NeverGiveUp) {
            return true;
        }
        false
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
        if let Some(error) = active.watch.cut_error() {
            return self.effects.push(Effect::Answer { run, result: Err(error) });
        }
        if active.busy {
            active.waiting = Some(Said::Commit(Box::new(changes), emitted));
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
        let nonce = self.draw.next();
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
        let checks = CommitChecks::of(&changes);
        let mut batch = commit_batch(&setting, cause, changes, fresh, (now, &mut self.elapsed), nonce)?;
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
        let under_way = CommitUnderWay { run, next, with_event, last, checks, ops };
        let token = self.token(Pending::Commit(Box::new(under_way)));
        self.effects.push(Effect::Commit { token, batch });
        Ok(())
    }

    fn answer_error(&mut self, run: RunId, error: CommitError) {
        let spoils = match error {
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
        if let Some(active) = self.runs.get_mut(&run).filter(|_| spoils) {
            active.spoiled.get_or_insert(error.clone());
        }
        self.effects.push(Effect::Answer { run, result: Err(error) });
    }

    pub(crate) fn commit_back(&mut self, now: Now, under_way: CommitUnderWay, outcome: Outcome) {
        let CommitUnderWay { run, next, with_event, last, checks, ops } = under_way;
        match outcome {
            Outcome::Done(done) => {
                self.note_appends(&ops);
                if let Some(active) = self.runs.get_mut(&run) {
                    active.ticket = next;
                    active.ordinal += u32::from(with_event);
                    active.acked = last;
                    // The session has read again and applied its updates to the new state.
                    active.spoiled.take_if(|error| matches!(error, CommitError::Conflict { .. }));
                    let handler = &mut self.handlers[active.handler];
                    handler.wants_claim |= last && handler.is_ordered();
                }
                self.effects.push(Effect::Answer { run, result: Ok(done.state) });
            }
            Outcome::Refused(refusal) => self.answer_error(run, checks.error(refusal)),
        }
        self.go_on(now, run);
    }

    /// Nothing of the commit is written, and nothing else has changed.
    pub(crate) fn commit_failed(&mut self, now: Now, run: RunId, error: CommitError) {
        self.answer_error(run, error);
        self.go_on(now, run);
    }

    /// The row is no longer being changed: handles what the handler did meanwhile.
    pub(crate) fn go_on(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.get_mut(&run) else { return };
        active.busy = false;
        if active.watch.is_cut() {
            return self.end_cut(now, run);
        }
        match active.waiting.take() {
            Some(Said::Commit(changes, emitted)) => self.handler_commit(now, run, *changes, emitted),
            Some(Said::Finished(result)) => self.finished(now, run, result),
            None => {}
        }
    }

    pub(crate) fn finished(&mut self, now: Now, run: RunId, result: Result<Vec<OutEvent>, RunError>) {
        match self.runs.get_mut(&run) {
            Some(active) if active.watch.is_cut() => {
                active.watch.returned = true;
                return;
            }
            Some(active) if active.busy => {
                active.waiting = Some(Said::Finished(result));
                return;
            }
            Some(_) => {}
            None => {
                self.returned(now, run);
                return;
            }
        }
        let Some(Active { handler, ticket, event, spoiled, acked, .. }) = self.runs.remove(&run) else {
            return;
        };
        self.handlers[handler].running -= 1;
        if acked {
            return self.ended_after_ack(handler, &event, result);
        }
        if self.failed.is_some() {
            return;
        }
        if spoiled == Some(CommitError::LeaseExpired) || !ticket.is_held(now.wall) {
            // The session that claims the event next counts this run.
            self.mark_lost(now, &ticket);
            self.handlers[handler].ready_again_at(ticket.row.due);
            self.effects.push(Effect::Note(Note::LeaseExpired { handler, event: event.id.clone() }));
            return;
        }
        if let Some(CommitError::Conflict { identity }) = spoiled {
            let act = self.run_again(now.wall, handler, &ticket, &event, identity);
            return self.send_later(now, act);
        }
        let ended = match (result, spoiled) {
            (Ok(_), Some(error)) => Err(RunError::Failed(error.to_string())),
            (Ok(emitted), None) => self
                .ack(now, handler, &ticket, &event, &emitted)
                .map_err(|error| RunError::Failed(error.to_string())),
            (Err(error), _) => Err(error),
        };
        let act = match ended {
            Ok(act) => self.sabotaged(now, act),
            Err(error) => self.end_unsuccessful(now.wall, handler, &ticket, &event, error),
        };
        match ticket.row.suspicion {
            // Nothing else starts before the ending is durable, so it must not linger.
            Suspicion::Likely => self.send(now, act),
            Suspicion::Possible | Suspicion::None => self.send_later(now, act),
        }
    }

    #[cfg(not(feature = "sabotage"))]
    fn sabotaged(&mut self, _now: Now, act: crate::action::Act) -> crate::action::Act {
        act
    }

    #[cfg(feature = "sabotage")]
    fn sabotaged(&mut self, now: Now, mut act: crate::action::Act) -> crate::action::Act {
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
                let act = self.give_back(now.wall, at, &claimed.ticket);
                self.send(now, act);
            }
        }
    }

    pub(crate) fn give_all_back(&mut self, now: Now) {
        (0..self.handlers.len()).for_each(|at| self.give_queue_back(now, at));
    }

    pub(crate) fn give_queue_back(&mut self, now: Now, at: usize) {
        for claimed in self.handlers[at].unqueue(|_| true) {
            let act = self.give_back(now.wall, at, &claimed.ticket);
            self.send(now, act);
        }
    }
}

fn is_stale(now: Now, lease_ms: u64, ticket: &Ticket) -> bool {
    now.wall + lease_ms / 2 > ticket.row.due
}
