//! The last commit of a run, `commit_and_ack()`: state, emitted events and the acknowledgement in one batch. No retry
//! can write any of it again, because there is no retry. If its handler then wants more events, the batch claims them as
//! well: a handler that takes one event at a time, of a session or of a key, waits for one sync per event and not for two.
//! A process that dies with such a claim loses no attempt of the event, because its run is not marked.

use std::sync::Arc;

use millrace_model::{BATCH_BYTES_MAX, Batch, Done, Event, Now, Op, Timestamp};

use crate::claiming::claims::WantedClaim;
use crate::commits::action::Action;
use crate::commits::batch_builder::fits;
use crate::interface::effect::Note;
use crate::interface::error::{CommitError, RunError};
use crate::interface::input::RunId;
use crate::interface::spec::OutEvent;
use crate::worker::Worker;

impl Worker {
    /// Builds the part of the batch that ends the claim.
    pub(crate) fn last_ack(
        &mut self,
        now: Now,
        run: RunId,
        emitted: &[OutEvent],
    ) -> Result<Action, CommitError> {
        let Some(active) = self.runs.must_get(run, &self.broken) else {
            return Err(CommitError::LeaseExpired);
        };
        match active.commit_error() {
            // The session has read again and applied its updates to the new state.
            None | Some(CommitError::Conflict { .. }) => {}
            Some(error) => return Err(error.clone()),
        }
        let (handler, ticket, event) = (active.handler(), active.ticket().clone(), active.event().clone());
        self.ack(now, handler, &ticket, &event, emitted)
    }

    /// The run has returned after its last commit: the event stays done, whatever the result. A failure is only
    /// reported.
    pub(crate) fn on_ended_after_ack(
        &mut self,
        handler: usize,
        event: &Arc<Event>,
        result: Result<Vec<OutEvent>, RunError>,
    ) {
        if let Err(error) = result {
            let (event, error) = (event.id.clone(), error.to_string());
            self.requests.note(Note::FailedAfterAck { handler, event, error });
        }
    }
}

/// The claim in the last commit of a run.
#[derive(Debug)]
pub(crate) struct RidingClaim {
    pub(crate) claims: Vec<WantedClaim>,
    /// The time of the batch.
    pub(crate) at: Timestamp,
}

impl Worker {
    /// Adds a claim of the handler to the last commit of one of its runs, if no other commit under way claims and the
    /// handler wants more events than it then holds. Operations of a batch are applied in their order, so the claim sees
    /// that the event has ended.
    pub(crate) fn add_claim(&mut self, now: Now, handler: usize, batch: &mut Batch) -> Option<RidingClaim> {
        if self.commits.are_claiming() || !self.session.is_working() || !self.may_start(now) {
            return None;
        }
        let events_max = self.handlers[handler].claim_size_with_last_commit();
        if events_max == 0 {
            return None;
        }
        let room = BATCH_BYTES_MAX.saturating_sub(batch.bytes());
        let claims = self.fit_claims(now, vec![WantedClaim { handler, events_max }], room);
        for claim in &claims {
            // The slot is the run's own until the handler has returned, so no event is marked as to be started at once.
            batch.ops.push(self.claim_op(now, *claim, 0));
            self.handlers[claim.handler].on_claim_sent();
            self.commits.claim_elsewhere(true);
        }
        (!claims.is_empty()).then_some(RidingClaim { claims, at: now.wall })
    }

    /// The commit with the claim has ended. `done` if it was written.
    pub(crate) fn on_riding_claim(&mut self, now: Now, riding: Option<RidingClaim>, done: Option<Done>) {
        let Some(RidingClaim { claims, at }) = riding else { return };
        self.commits.claim_elsewhere(false);
        match done {
            Some(done) => {
                self.on_claimed(now, at, &claims, done);
                if self.session.is_stopping() {
                    self.give_all_back(now);
                }
            }
            None => claims.iter().for_each(|claim| self.handlers[claim.handler].on_claim_deferred()),
        }
    }
}

/// Adds the acknowledgement to the batch of the commit. The emitted events are recorded with its commit of state.
pub(crate) fn add_ack(batch: &mut Batch, ack: Action) -> Result<(), CommitError> {
    let emitted = ack.ops.iter().filter_map(|op| match op {
        Op::Append(append) => append.event.id.clone(),
        Op::Delay(delay) => Some(delay.id.clone()),
        _ => None,
    });
    for op in &mut batch.ops {
        if let Op::Reconcile(reconcile) = op {
            reconcile.events.extend(emitted.clone());
        }
    }
    batch.checks.extend(ack.checks);
    batch.ops.extend(ack.ops);
    fits(batch)
}
