//! A run of a handler, from its start to its end.

use std::sync::Arc;

use millrace_model::{Event, Mono, Now, RunMark, Suspicion, Ticket, Timestamp};

use crate::interface::effect::Note;
use crate::interface::error::{CommitError, RunError};
use crate::interface::input::{RunId, StateChanges};
use crate::interface::spec::OutEvent;
use crate::running::timeout::RunTimer;
use crate::worker::Worker;

#[derive(Debug)]
pub(crate) struct ActiveRun {
    handler: usize,
    ticket: Ticket,
    event: Arc<Event>,
    /// When the run was started.
    since: Mono,
    /// The handler was called. Before that, the mark of the run is being written.
    begun: bool,
    /// Commits with an event in this attempt. The first `row.steps` of them were stored by earlier attempts.
    ordinal: u32,
    /// The claim's row is being changed by a commit, a renewal or a mark: what the handler does meanwhile waits in
    /// `deferred`, and the run cannot end.
    busy: bool,
    deferred: Option<DeferredInput>,
    /// A failed commit after which the run cannot count as a success any more.
    commit_error: Option<CommitError>,
    /// The run's last commit has ended the claim: nothing more is written for this event, however the handler ends.
    acked: bool,
    timer: RunTimer,
}

/// An input of a handler that came while the row of its claim was being changed.
#[derive(Debug)]
pub(crate) enum DeferredInput {
    /// With the emitted events, if this is the run's last commit.
    Commit(Box<StateChanges>, Option<Vec<OutEvent>>),
    Finished(Result<Vec<OutEvent>, RunError>),
}

impl ActiveRun {
    pub(crate) fn new(now: Now, handler: usize, ticket: Ticket, event: Arc<Event>) -> ActiveRun {
        ActiveRun {
            handler,
            ticket,
            event,
            since: now.mono,
            begun: false,
            ordinal: 0,
            busy: false,
            deferred: None,
            commit_error: None,
            acked: false,
            // The timeout is counted from the call of the handler, in `begin`.
            timer: RunTimer::new(now, None),
        }
    }

    pub(crate) fn handler(&self) -> usize {
        self.handler
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    pub(crate) fn event(&self) -> &Arc<Event> {
        &self.event
    }

    pub(crate) fn since(&self) -> Mono {
        self.since
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(crate) fn is_acked(&self) -> bool {
        self.acked
    }

    pub(crate) fn has_deferred(&self) -> bool {
        self.deferred.is_some()
    }

    pub(crate) fn commit_error(&self) -> Option<&CommitError> {
        self.commit_error.as_ref()
    }

    pub(crate) fn timer(&self) -> &RunTimer {
        &self.timer
    }

    pub(crate) fn timer_mut(&mut self) -> &mut RunTimer {
        &mut self.timer
    }

    /// Whether the run's lease is to be renewed when it grows old.
    pub(crate) fn wants_lease(&self, now: Timestamp) -> bool {
        !self.busy && !self.acked && self.ticket.is_held(now)
    }

    /// Whether the row belongs to the run, and nothing is changing it now.
    pub(crate) fn may_be_marked(&self, now: Now) -> bool {
        self.begun && self.commit_error.is_none() && self.wants_lease(now.wall)
    }

    /// A run under suspicion begins when its mark is durable.
    pub(crate) fn waits_for_mark(&self) -> bool {
        self.ticket.row.suspicion > Suspicion::None && self.ticket.row.run == RunMark::Unknown
    }

    /// The handler is called now.
    pub(crate) fn begin(&mut self, now: Now, timeout_ms: Option<u64>) {
        (self.begun, self.busy, self.since) = (true, false, now.mono);
        self.timer = RunTimer::new(now, timeout_ms);
    }

    /// The claim's row is being changed from now on.
    pub(crate) fn row_changes(&mut self) {
        self.busy = true;
    }

    /// The claim's row is not being changed any more. Returns what the handler did meanwhile.
    pub(crate) fn row_changed(&mut self) -> Option<DeferredInput> {
        self.busy = false;
        self.deferred.take()
    }

    pub(crate) fn defer(&mut self, input: DeferredInput) {
        self.deferred = Some(input);
    }

    pub(crate) fn take_deferred(&mut self) -> Option<DeferredInput> {
        self.deferred.take()
    }

    pub(crate) fn set_ticket(&mut self, ticket: Ticket) {
        self.ticket = ticket;
    }

    /// The run cannot count as a success any more; the first error counts.
    pub(crate) fn fail(&mut self, error: CommitError) {
        self.commit_error.get_or_insert(error);
    }

    /// Whether no earlier attempt has stored the event of the run's next commit.
    pub(crate) fn is_fresh_step(&self) -> bool {
        self.ordinal >= self.ticket.row.steps
    }

    /// Counts a commit with an event.
    pub(crate) fn count_step(&mut self) {
        self.ordinal += 1;
    }

    /// A commit of the handler is durable; `last` if it carried the acknowledgement.
    pub(crate) fn on_committed(&mut self, next: Ticket, with_event: bool, last: bool) {
        self.ticket = next;
        self.ordinal += u32::from(with_event);
        self.acked = last;
        // The session has read again and applied its updates to the new state.
        self.commit_error.take_if(|error| matches!(error, CommitError::Conflict { .. }));
    }
}

impl Worker {
    /// The row is no longer being changed: handles what the handler did meanwhile.
    pub(crate) fn resume_run(&mut self, now: Now, run: RunId) {
        let Some(active) = self.runs.must_get_mut(run, &self.broken) else { return };
        let deferred = active.row_changed();
        if active.timer().is_cut() {
            return self.end_cut_run(now, run);
        }
        match deferred {
            Some(DeferredInput::Commit(changes, emitted)) => self.handler_commit(now, run, *changes, emitted),
            Some(DeferredInput::Finished(result)) => self.on_finished(now, run, result),
            None => {}
        }
    }

    pub(crate) fn on_finished(&mut self, now: Now, run: RunId, result: Result<Vec<OutEvent>, RunError>) {
        match self.runs.get_mut(run) {
            Some(active) if active.timer.is_cut() => active.timer.on_returned(),
            Some(active) if active.busy => active.defer(DeferredInput::Finished(result)),
            Some(_) => self.end_run(now, run, result),
            // The run was cut off and hangs, or the shell has reported its end before.
            None => self.on_hanging_returned(now, run),
        }
    }

    fn end_run(&mut self, now: Now, run: RunId, result: Result<Vec<OutEvent>, RunError>) {
        let Some(active) = self.runs.must_remove(run, &self.broken) else { return };
        let ActiveRun { handler, ticket, event, commit_error, acked, .. } = active;
        self.handlers[handler].on_run_ended(acked, &self.broken);
        if acked {
            return self.on_ended_after_ack(handler, &event, result);
        }
        if self.session.failure().is_some() {
            return;
        }
        if commit_error == Some(CommitError::LeaseExpired) || !ticket.is_held(now.wall) {
            // The session that claims the event next counts this run.
            self.mark_lost(now, &ticket);
            self.handlers[handler].ready_again_at(ticket.row.due);
            self.requests.note(Note::LeaseExpired { handler, event: event.id.clone() });
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
}
