//! The last commit of a run, `commit_and_ack()`: state, emitted events and the acknowledgement in one batch. No retry
//! can write any of it again, because there is no retry.

use std::sync::Arc;

use millrace_model::{Batch, Event, Now, Op};

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
