//! Success: the acknowledgement of an event, together with the events that its handler emitted.

use std::sync::Arc;

use millrace_model::{Batch, Ending, Event, FinishedRow, Now, Ticket};

use crate::commits::action::{Action, FollowUp};
use crate::commits::batch_builder::{caused_by, depth_allowed, derived_id, fits};
use crate::commits::event_writer::{EventWriter, NewEventId};
use crate::endings::finished::finished_ops;
use crate::interface::error::CommitError;
use crate::interface::spec::OutEvent;
use crate::worker::Worker;

impl Worker {
    /// The handler succeeded: the claim ends, the event is finished for the handler, and its emitted events are
    /// appended; all or nothing.
    pub(crate) fn ack(
        &mut self,
        now: Now,
        handler: usize,
        ticket: &Ticket,
        event: &Arc<Event>,
        emitted: &[OutEvent],
    ) -> Result<Action, CommitError> {
        let limit = self.config.max_batch_size;
        if emitted.len() > limit {
            return Err(CommitError::BatchSizeExceeded { count: emitted.len(), limit });
        }
        let finished = FinishedRow {
            ending: Ending::Acked,
            at: now.wall,
            attempts: ticket.row.attempts,
            session: Some(self.identity.session.clone()),
            error: None,
        };
        let (check, delete) = ticket.end();
        let mut ops = vec![delete];
        ops.extend(finished_ops(ticket, &finished));
        let lineage = caused_by(event);
        let mut writer =
            EventWriter::new(&self.identity.namespace, self.topics.known(), now, &mut self.elapsed);
        for (at, out) in (0..).zip(emitted) {
            depth_allowed(&lineage, self.config.max_event_chain_depth)?;
            let parts = [&event.id.to_string(), ticket.handler.as_str(), &at.to_string()];
            let id = NewEventId { id: derived_id("emit", &parts), may_repeat: true };
            ops.extend(writer.ops(out, id, lineage.clone(), (self.prng.next(), at))?);
        }
        let batch = Batch { ops, ..Batch::default() };
        fits(&batch)?;
        let follow_up = FollowUp::Acked { handler, event: event.clone() };
        Ok(Action { checks: vec![check], ops: batch.ops, follow_up })
    }
}
